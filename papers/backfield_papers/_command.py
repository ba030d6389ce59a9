"""``backfield reproduce``: a table or figure of a paper, measured again and set beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP

if TYPE_CHECKING:
    from backfield_papers import Outcome

MAX_CELL = 40


def reproduce(
    name: Annotated[str, typer.Argument(help="Which one, such as d13-fig3.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the data, for experiments that need some.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run; the settings say so.")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write settings and rows there.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write NAME.json and the pictures into this folder; a stopped run goes on there.")
    ] = None,
    so_far: Annotated[bool, typer.Option("--so-far", help="Write the cells of a stopped run; compute none.")] = False,
    n_jobs: Annotated[int, typer.Option(min=1, help="Threads over examples, or processes over cells.")] = 1,
    cluster: Annotated[str | None, typer.Option(help=f"{CLUSTER_HELP} Fits of estimators go there.")] = None,
) -> None:
    """Measure a table or figure of the papers again and print it beside theirs."""
    import json

    from rich.console import Console

    from backfield.atomic import write_text
    from backfield.cli._models import quiet_cluster
    from backfield.errors import InputError
    from backfield.training.execution import using
    from backfield_papers import Context
    from backfield_papers import reproduce as measure

    _check_targets(as_json, out)
    if so_far and out is None:
        raise InputError("--so-far needs --out, the folder of the stopped run.")
    error = Console(stderr=True)
    with error.status("starting") if error.is_terminal else _Silent() as status:
        partial = None if out is None else _folder(out) / f".{name}.cells"
        context = Context(data, quick, lambda message: status.update(f"{name}: {message}"), n_jobs, partial, so_far)
        with quiet_cluster(cluster), using(cluster):
            found, outcome = measure(name, context)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    _print(found)
    if as_json is not None:
        write_text(as_json, text)
    if out is not None:
        write_text(out / f"{name}.json", text)
        _draw(outcome, out)
        if not so_far:
            (out / f".{name}.cells").unlink(missing_ok=True)


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
