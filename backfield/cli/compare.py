"""``backfield compare``: the table of learning x inference ([K05] Table 1) for anybody's data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfield.cli._models import Force, ridge
from backfield.cli.fit import DATA_HELP, Dtype

if TYPE_CHECKING:
    from backfield.data.format import Data
    from backfield.estimators.coupling import Cell

#: Options that take several values in a row: ``--learning A B C``.
SEVERAL = ("--learning", "--inference")


def spread(arguments: list[str]) -> list[str]:
    """Return ``--learning A B`` written as ``--learning A --learning B``, which the parser understands."""
    if arguments[:1] != ["compare"]:
        return arguments
    out: list[str] = []
    current = ""
    for argument in arguments:
        if argument.startswith("-"):
            current = argument if argument in SEVERAL else ""
            out.append(argument)
        elif current and out[-1] != current:
            out += [current, argument]
        else:
            out.append(argument)
    return out


def compare(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    learning: Annotated[
        list[str], typer.Option(help="Rows: losses or objectives; 'LOSS @ INFERENCE' learns through its own inference.")
    ],
    inference: Annotated[
        list[str], typer.Option(help="Columns: inference methods, MAP solvers or decoders; the first method trains, too.")
    ],
    model: Annotated[str | None, typer.Option(help="Structure, as in fit; by default chosen from the data.")] = None,
    test: Annotated[Path | None, typer.Option(help="Data to test on; by default a share of DATA is held out.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the examples to test on, without --test.")] = 0.3,
    learner: Annotated[str | None, typer.Option(help="Learner of all rows; by default each row's usual one.")] = None,
    unary: Annotated[str | None, typer.Option(help="Energy of variables.")] = None,
    pairwise: Annotated[str | None, typer.Option(help="Energy of edges.")] = None,
    l2: Annotated[str | None, typer.Option(help="Ridge (L2 penalty): a number, or auto.")] = None,
    labels: Annotated[int | None, typer.Option(help="Number of classes, 0 .. N-1; by default those that occur.")] = None,
    features: Annotated[str | None, typer.Option(help="Of pixels: rgb, raw, pixel or l13.")] = None,
    edges: Annotated[
        str | None, typer.Option(help="Of edges: constant, difference, sobel (joined by commas), given.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Precision of the computation.")] = None,
    n_jobs: Annotated[int, typer.Option(help="Number of threads; -1 = all cores.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for compare.json, compare.html and compare.png.")] = None,
    force: Force = False,
) -> None:
    """Learn in several ways, decode in several ways, and print the errors of all pairs with their times."""
    import json

    from rich.console import Console

    from backfield.atomic import protecting, write_text
    from backfield.cli.fit import _estimator
    from backfield.data.checks import check_labels
    from backfield.errors import InputError
    from backfield.estimators.coupling import check_table, coupling_table
    from backfield.structures.reading import choose_preprocessing, read_data

    context.with_resource(protecting(data, test, force=force))
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder.")
    train = read_data(data, structure=model)
    check_labels(train, labels)
    train, rest = _test_data(train, test, held_out, seed)
    made = choose_preprocessing(train, features, edges)
    given = {"unary": unary, "pairwise": pairwise, "l2": ridge(l2), "n_labels": labels, "dtype": dtype and dtype.value}
    crf = _estimator(train, {key: value for key, value in given.items() if value is not None})
    crf.set_params(n_jobs=n_jobs, random_state=seed)
    check_table(crf, learning, inference, learner)
    error = Console(stderr=True)
    with error.status("starting") as status:
        cells = coupling_table(
            crf,
            learning,
            inference,
            (made(train), train.labels),
            (made(rest), rest.labels),
            learner=learner,
            progress=lambda message: status.update(message) if error.is_terminal else None,
        )
    found = {"data": str(data), "train": len(train), "test": len(rest), "cells": [cell.as_json() for cell in cells]}
    if as_json:
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        _print(cells, train, rest)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "compare.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
        _write_page(out, data, cells, train, rest)


def _test_data(train: Data, test: Path | None, share: float, seed: int) -> tuple[Data, Data]:
    """Return what to learn from and what to test on."""
    from backfield.cli.fit import _hold_out
    from backfield.errors import InputError

    if test is None:
        if not 0 < share < 1:
            raise InputError(f"--held-out takes a share between 0 and 1, received {share}.")
        count = round(share * len(train))
        if not 0 < count < len(train):
            raise InputError(
                f"{train.path}: {len(train)} {train.unit[0]}{'s' * (len(train) != 1)} cannot be split into "
                "training and test data; give --test DATA."
            )
    kept, rest = _hold_out(train, str(share) if test is None else str(test), seed)
    assert rest is not None
    return kept, rest


def _grid(cells: list[Cell]) -> tuple[list[str], list[str], dict[tuple[str, str], Cell]]:
    rows = list(dict.fromkeys(cell.learning for cell in cells))
    columns = list(dict.fromkeys(cell.inference for cell in cells))
    return rows, columns, {(cell.learning, cell.inference): cell for cell in cells}


def _best(cells: list[Cell], column: str) -> float:
    return min((cell.error for cell in cells if cell.inference == column and cell.error is not None), default=-1.0)


def _print(cells: list[Cell], train: Data, test: Data) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    example, variable = train.unit
    out.print(
        f"errors in per cent of {variable}s; learned from {len(train)} {example}s, tested on {len(test)}; * = column's best"
    )
    rows, columns, at = _grid(cells)
    table = Table(box=box.SIMPLE)
    table.add_column("learning \\ inference", overflow="fold")
    for column in columns:
        table.add_column(escape(column), justify="right", overflow="fold")
    table.add_column("seconds to learn", justify="right")
    for row in rows:
        words = [_word(at[row, column], _best(cells, column)) for column in columns]
        table.add_row(escape(row), *words, f"{at[row, columns[0]].learning_seconds:.1f}")
    table.add_section()
    means = [_mean([at[row, column].inference_seconds for row in rows]) for column in columns]
    table.add_row("seconds to infer", *(f"{value:.2f}" for value in means), "")
    out.print(table)
    for text in dict.fromkeys(f"- {cell.learning} / {cell.inference}: {cell.reason}" for cell in cells if cell.reason):
        out.print(escape(text))


def _word(cell: Cell, best: float) -> str:
    if cell.error is None:
        return "-"
    return f"{100 * cell.error:.2f}{'*' if cell.error == best else ' '}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _write_page(out: Path, data: Path, cells: list[Cell], train: Data, test: Data) -> None:
    from backfield.errors import InputError
    from backfield.report.coupling import draw_coupling, write_coupling_page

    rows, columns, at = _grid(cells)
    about = f"Learned from {len(train)} {train.unit[0]}s of {data.name}, tested on {len(test)}."
    write_coupling_page(out / "compare.html", f"Learning and inference on {data.name}", about, rows, columns, at)
    try:
        draw_coupling(out / "compare.png", rows, columns, at)
    except InputError as error:  # matplotlib is an extra; the page shows the same
        typer.echo(f"backfield: no compare.png: {error}", err=True)
