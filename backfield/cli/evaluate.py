"""``backfield evaluate``: scores of a model on labelled data, as a table, as JSON, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP
from backfield.cli.fit import DATA_HELP

if TYPE_CHECKING:
    from backfield.cli._models import Predictions
    from backfield.data.format import Data, Preprocessing
    from backfield.report import Metrics, Row, TaggedSentence

N_PICTURES = 6
N_SENTENCES = 12
MAX_ROWS = 30


def evaluate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model that fit has written.")],
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page with charts and examples there (.html).")] = None,
    allow_unseen: Annotated[
        bool,
        typer.Option("--allow-unseen", help="Labels that training has not seen are errors of the model, not of the data."),
    ] = False,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER_HELP)] = None,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1 = all cores.")] = 1,
) -> None:
    """Print accuracy, errors, IoU and F1 per class, calibration and timing."""
    import json

    import numpy as np

    from backfield.atomic import protecting
    from backfield.cli._models import load_model, read_for
    from backfield.data.checks import check_classes, classes_of

    context.with_resource(protecting(model, data))
    if report is not None:
        _check_place(report)
    crf, made = load_model(model)
    crf.set_params(n_jobs=n_jobs)
    read, X = read_for(crf, made, data, with_labels=True)
    extra = classes_of(read)[~np.isin(classes_of(read), crf.classes_)] if allow_unseen else crf.classes_[:0]
    check_classes(read, np.concatenate([crf.classes_, extra]))
    assert read.labels is not None
    found, metrics = _scored(crf, read, X, extra, cluster)
    if report is not None:
        _write(report, model, crf, made, read, found, metrics)
    if as_json:
        head = {"model": str(model), "data": str(data), "examples": len(read), "seconds": found.seconds}
        typer.echo(json.dumps(head | metrics.as_json(), allow_nan=False))
    else:
        _print(model, read, found, metrics)


def _check_place(report: Path) -> None:
    """Refuse a page that cannot be written before everything is predicted, not after."""
    from backfield.atomic import check_output
    from backfield.errors import InputError

    check_output(report)
    if report.is_dir() or not report.absolute().parent.is_dir():
        why = "it is a folder" if report.is_dir() else f"there is no folder {report.absolute().parent}"
        raise InputError(f"cannot write the page {report}: {why}.")


def _scored(crf: Any, data: Data, X: Any, extra: Any, cluster: str | None) -> tuple[Predictions, Metrics]:
    """Score predictions as they come, with more classes; return those that a page shows, and the metrics."""
    import time

    import numpy as np

    from backfield.cli._models import Predictions, predicted
    from backfield.metrics.tally import Tally

    assert data.labels is not None
    start = time.perf_counter()
    order = np.argsort(np.concatenate([crf.classes_, extra]), kind="stable")
    tally = Tally(np.concatenate([crf.classes_, extra])[order])
    shown, labels, probabilities = _shown(data), {}, {}
    for k, (truth, (guess, p)) in enumerate(zip(data.labels, predicted(crf, X, cluster), strict=True)):
        tally.add(truth, guess, np.concatenate([p, np.zeros((*p.shape[:-1], len(extra)), p.dtype)], axis=-1)[..., order])
        if k in shown:
            labels[k], probabilities[k] = guess, p
    return Predictions(labels, probabilities, time.perf_counter() - start), tally.metrics()


def _shown(data: Data) -> list[int]:
    """Return the examples of a page: the first images, or sentences of its width."""
    if data.format.shows != "sentences":
        return list(range(min(N_PICTURES, len(data))))
    return ([k for k in range(len(data)) if 4 <= len(data.inputs[k]) <= 40] or list(range(len(data))))[:N_SENTENCES]


def _print(model: Path, data: Data, found: Predictions, metrics: Metrics) -> None:
    import numpy as np
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    example, variable = data.unit
    out.print(escape(f"{model} on {data.path}: {len(data)} {example}s, {metrics.n_variables:,} labelled {variable}s"))
    table = Table(box=box.SIMPLE)
    for heading in ("class", f"{variable}s", "error", "precision", "recall", "F1", "IoU"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    columns = (metrics.class_error, metrics.precision, metrics.recall, metrics.f1, metrics.iou)
    for k in np.argsort(-metrics.support, kind="stable")[:MAX_ROWS]:
        cells = ["-" if np.isnan(column[k]) else f"{column[k]:.4f}" for column in columns]
        table.add_row(escape(str(metrics.classes[k])), f"{metrics.support[k]:,}", *cells)
    out.print(table)
    if len(metrics.classes) > MAX_ROWS:
        out.print(f"... and {len(metrics.classes) - MAX_ROWS} more classes (--json gives all)")
    out.print(f"accuracy {metrics.accuracy:.4f}  error {metrics.error:.4f}  mean IoU {metrics.mean_iou:.4f}", end="")
    out.print(f"  mean F1 {metrics.macro_f1:.4f}")
    if metrics.chunks is not None:
        chunks = metrics.chunks
        out.print(f"chunks: precision {chunks.precision:.4f}  recall {chunks.recall:.4f}  F1 {chunks.f1:.4f}")
    out.print(f"expected calibration error {metrics.ece:.4f}  log loss {metrics.log_loss:.4f}")
    out.print(f"{found.seconds:.3g} s, {1000 * found.seconds / max(1, len(data)):.3g} ms per {example}")


def _write(
    path: Path, name: Path, crf: Any, made: Preprocessing | None, data: Data, found: Predictions, metrics: Metrics
) -> None:
    from backfield.cli._models import settings_of
    from backfield.report import ModelResult, write_report

    assert data.labels is not None
    example, variable = data.unit
    seconds = {"fit": crf.trace_[-1]["seconds"]} if crf.trace_ and "seconds" in crf.trace_[-1] else {}
    result = ModelResult(name.name, metrics, crf.trace_, settings_of(crf, made), seconds | {"predict": found.seconds})
    known = f"{metrics.n_variables:,} labelled {variable}s"
    about = [f"{len(data)} {example}s, {known}, {len(metrics.classes)} classes."]
    write_report(
        path,
        f"{name.name} on {data.path.name}",
        about,
        [result],
        picture_rows(data, found, crf.classes_) if data.format.shows == "pictures" else (),
        _sentences(data, found) if data.format.shows == "sentences" else (),
        {"model": name, "data": data.path, "examples": len(data), f"labelled {variable}s": f"{metrics.n_variables:,}"},
    )


def picture_rows(data: Data, found: Predictions, classes: Any) -> list[Row]:
    """Return input, truth, prediction and marginals of the first images."""
    import numpy as np

    from backfield.report import Picture, Row
    from backfield.report.pictures import input_picture, label_picture, marginal_picture

    assert data.labels is not None
    rows = []
    for k in range(min(N_PICTURES, len(data))):
        truth, guess = (np.asarray(labels[k]) for labels in (data.labels, found.labels))
        wrong = float((truth != guess)[truth != -1].mean()) if (truth != -1).any() else 0.0
        places = [np.where(each == -1, -1, np.searchsorted(classes, each)) for each in (truth, guess)]
        marginal = f"probability of {classes[1]}" if len(classes) == 2 else "confidence"
        pictures = [
            Picture(data.names[k], input_picture(data.inputs[k])),
            Picture("truth", label_picture(places[0])),
            Picture(f"prediction, error {100 * wrong:.1f} %", label_picture(places[1])),
            Picture(marginal, marginal_picture(found.probabilities[k])),
        ]
        rows.append(Row(data.names[k], pictures))
    return rows


def _sentences(data: Data, found: Predictions) -> list[TaggedSentence]:
    """Return some sentences of a page's width."""
    from backfield.report import TaggedSentence

    assert data.labels is not None
    return [
        TaggedSentence(
            [token[0] for token in data.inputs[k]],
            [str(tag) for tag in data.labels[k]],
            [str(tag) for tag in found.labels[k]],
            [float(p.max()) for p in found.probabilities[k]],
        )
        for k in _shown(data)
    ]
