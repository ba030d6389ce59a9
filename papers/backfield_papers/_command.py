"""``backfield reproduce``: a table or figure of a paper, measured again and set beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP

if TYPE_CHECKING:
    from backfield_papers import Outcome

MAX_CELL = 40
#: Where results are kept in this repository.
RESULTS = Path("docs/results")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which one, such as d13-fig3; without it, all are listed.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data, for experiments that need some.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run; the settings say so.")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write settings and rows there.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write NAME.json and pictures into this folder; cells that are kept there are not computed again."
        ),
    ] = None,
    so_far: Annotated[bool, typer.Option("--so-far", help="Write the cells that are done; compute none.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute all cells again.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every experiment, one after the other; needs --out.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --all: compute what is missing, and cells of changed sources.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show how far each experiment is; compute none.")] = False,
    n_jobs: Annotated[int, typer.Option(min=1, help="Threads over examples, or processes over cells.")] = 1,
    cluster: Annotated[str | None, typer.Option(help=f"{CLUSTER_HELP} Fits of estimators go there.")] = None,
) -> None:
    """Measure a table or figure of the papers again and print it beside theirs."""
    from backfield.errors import InputError

    if status or (name is None and not everything):
        return _list(RESULTS if out is None else out, status)
    if everything:
        if name is not None or quick or so_far or fresh or as_json is not None:
            raise InputError("--all takes --data, --out and --resume only.")
        return _run_all(data, RESULTS if out is None else out, resume)
    assert name is not None
    if resume:
        raise InputError("--resume belongs to --all; a stopped run of one experiment goes on with the same --out.")
    if fresh and so_far:
        raise InputError("--fresh computes all cells again, --so-far none; take one of them.")
    _run_one(name, data, quick, as_json, out, so_far, fresh, n_jobs, cluster)


def _list(out: Path, status: bool) -> None:
    """Print the experiments: their titles, or how far they are."""
    from rich import box
    from rich.table import Table

    from backfield.cli._console import console
    from backfield_papers._base import lookup
    from backfield_papers._campaign import status as progress_of_all

    table = Table(box=box.SIMPLE)
    for column in ("experiment", "state", "") if status else ("experiment", "what it measures"):
        table.add_column(column)
    for each in progress_of_all(out):
        table.add_row(each.name, *((each.state, each.detail) if status else (lookup(each.name).title,)))
    console().print(table)


def _run_all(data: Path | None, out: Path, resume: bool) -> None:
    from backfield.cli._console import console
    from backfield_papers._campaign import run_all

    _check_targets(None, out)
    failed = run_all(data, _folder(out), resume, lambda message: console().print(message))
    if failed:
        raise RuntimeError(f"these experiments failed, the others are done: {', '.join(failed)}")


def _run_one(
    name: str,
    data: Path | None,
    quick: bool,
    as_json: Path | None,
    out: Path | None,
    so_far: bool,
    fresh: bool,
    n_jobs: int,
    cluster: str | None,
) -> None:
    import json

    from rich.console import Console

    from backfield.atomic import write_text
    from backfield.cli._models import quiet_cluster
    from backfield.errors import InputError
    from backfield.training.execution import using
    from backfield_papers import Context
    from backfield_papers import reproduce as measure
    from backfield_papers._base import lookup

    _check_targets(as_json, out)
    if so_far and out is None:
        raise InputError("--so-far needs --out, the folder of the stopped run.")
    error = Console(stderr=True)
    with error.status("starting") if error.is_terminal else _Silent() as status:
        kept = None if out is None else lookup(name).kept(_folder(out), quick)
        if kept is not None and fresh:
            kept.unlink(missing_ok=True)
        context = Context(data, quick, lambda message: status.update(f"{name}: {message}"), n_jobs, kept, so_far)
        with quiet_cluster(cluster), using(cluster):
            found, outcome = measure(name, context)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    _print(found)
    if as_json is not None:
        write_text(as_json, text)
    if out is not None:
        write_text(out / f"{name}.json", text)
        _draw(outcome, out)
    if quick and kept is not None:
        kept.unlink(missing_ok=True)


def _folder(out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    return out


class _Silent:
    """Progress that nobody sees."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, message: str) -> None:
        pass


def _check_targets(as_json: Path | None, out: Path | None) -> None:
    """Refuse places that cannot be written to before the work and not after it."""
    from backfield.errors import InputError

    if as_json is not None and not as_json.resolve().parent.is_dir():
        raise InputError(f"there is no folder {as_json.resolve().parent} for {as_json.name}.")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder.")


def _draw(outcome: Outcome, out: Path) -> None:
    import os

    for file, draw in outcome.pictures.items():
        part = out / f".part.{file}"
        try:
            draw(part)
            os.replace(part, out / file)
        finally:
            part.unlink(missing_ok=True)


def _print(found: dict[str, Any]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    columns = list(dict.fromkeys(key for row in found["rows"] for key in row if not isinstance(row[key], list | dict)))
    table = Table(box=box.SIMPLE)
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    for row in found["rows"]:
        table.add_row(*[escape(_cell(row.get(column))) for column in columns])
    out.print(table)
    kind = " (a quick run, smaller than the paper's)" if found["settings"]["quick"] else ""
    out.print(f"{found['name']}: {len(found['rows'])} rows in {found['seconds']:.3g} s{kind}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 3]}..."
