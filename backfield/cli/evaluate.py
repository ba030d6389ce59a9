"""``backfield evaluate``: scores of a model on labelled data, as a table, as JSON, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from backfield.cli._models import CLUSTER_HELP, Force
from backfield.cli.fit import DATA_HELP

if TYPE_CHECKING:
    import numpy as np

    from backfield.data.format import Data, Preprocessing
    from backfield.report import Example, Metrics, ModelResult, TaggedSentence

N_SENTENCES = 12
MAX_ROWS = 30


class Judged(NamedTuple):
    """A model on labelled data: its scores, and per example the share of wrong labels and which were confused."""

    name: str
    crf: Any
    preprocessing: Preprocessing | None
    X: Any
    metrics: Metrics
    errors: list[float]
    confusions: list[dict[tuple[int, int], int]]
    seconds: float

    def predictions(self, chosen: list[int]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return labels and marginals of some examples, by their number."""
        from backfield.cli._models import predicted

        return dict(zip(chosen, predicted(self.crf, [self.X[k] for k in chosen]), strict=True))


def _positions(labels: Any, classes: Any) -> np.ndarray:
    """Return labels as positions among sorted classes; hidden ones are -1."""
    import numpy as np

    values, known = np.asarray(labels), np.asarray(classes)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, place, -1)


def evaluate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model written by fit.")],
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report with charts and examples to this file.")] = None,
    compare: Annotated[Path | None, typer.Option(help="A second model to compare with.")] = None,
    allow_unseen: Annotated[
        bool,
        typer.Option(
            "--allow-unseen", help="Count labels unseen in training as prediction errors instead of rejecting the data."
        ),
    ] = False,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER_HELP)] = None,
    n_jobs: Annotated[int, typer.Option(help="Number of threads; -1 = all cores.")] = 1,
    force: Force = False,
) -> None:
    """Print accuracy, errors, IoU and F1 per class, calibration and timing."""
    import json

    from backfield.atomic import protecting
    from backfield.errors import InputError

    context.with_resource(protecting(model, data, compare, force=force))
    if report is not None:
        _check_place(report)
    read, first = _judged(model, data, allow_unseen, cluster, n_jobs)
    judged = [first] if compare is None else [first, _judged(compare, data, allow_unseen, cluster, n_jobs)[1]]
    if compare is not None and len({str(each.metrics.classes) for each in judged}) > 1:
        raise InputError(f"{model} and {compare} have different labels, so they cannot be compared.")
    if report is not None:
        _write(report, judged, read)
    if as_json:
        head = {"model": str(model), "data": str(data), "examples": len(read), "seconds": first.seconds}
        found = head | first.metrics.as_json()
        typer.echo(json.dumps(found | ({"compared": _compared(judged)} if compare else {}), allow_nan=False))
        return
    for each, path in zip(judged, [model, compare], strict=False):
        _print(path, read, each)
    if compare is not None:
        _print_difference(_compared(judged))


def _check_place(report: Path) -> None:
    """Refuse a page that cannot be written before everything is predicted, not after."""
    from backfield.atomic import check_output
    from backfield.errors import InputError
    from backfield.file_kinds import PAGE

    check_output(report, PAGE)
    if report.is_dir() or not report.absolute().parent.is_dir():
        why = "it is a folder" if report.is_dir() else f"there is no folder {report.absolute().parent}"
        raise InputError(f"cannot write the page {report}: {why}.")


def _judged(path: Path, data: Path, allow_unseen: bool, cluster: str | None, n_jobs: int) -> tuple[Data, Judged]:
    """Score the predictions of a model as they come; none is kept."""
    import dataclasses

    import numpy as np

    from backfield.cli._models import load_model, predicted, read_for
    from backfield.data.checks import check_classes, classes_of
    from backfield.estimators import ChainCRF
    from backfield.kernels.compiling import clock
    from backfield.metrics.conlleval import span_calibration
    from backfield.metrics.tally import Tally
    from backfield.report.gallery import confusions_of

    crf, made = load_model(path)
    crf.set_params(n_jobs=n_jobs)
    read, X = read_for(crf, made, data, with_labels=True)
    extra = classes_of(read)[~np.isin(classes_of(read), crf.classes_)] if allow_unseen else crf.classes_[:0]
    classes = np.concatenate([crf.classes_, extra])
    check_classes(read, classes)
    assert read.labels is not None
    start = clock()
    order = np.argsort(classes, kind="stable")
    tally = Tally(classes[order])
    errors, confusions = [], []
    for truth, (guess, p) in zip(read.labels, predicted(crf, X, cluster), strict=True):
        tally.add(truth, guess, np.concatenate([p, np.zeros((*p.shape[:-1], len(extra)), p.dtype)], axis=-1)[..., order])
        real, guessed = (_positions(labels, tally.classes) for labels in (truth, guess))
        errors.append(float((real != guessed)[real >= 0].mean()) if (real >= 0).any() else np.nan)
        confusions.append(confusions_of(real, guessed))
    seconds, metrics = clock() - start, tally.metrics()
    if metrics.chunks is not None and isinstance(crf, ChainCRF):
        metrics = dataclasses.replace(metrics, spans=span_calibration(read.labels, crf.predict_spans(X)))
    return read, Judged(path.name, crf, made, X, metrics, errors, confusions, seconds)


def _compared(judged: list[Judged]) -> dict[str, Any]:
    """Return the scores of the second model, and how much larger its error is: a mean over examples with its interval."""
    import numpy as np

    first, second = judged
    gap = np.array(second.errors) - np.array(first.errors)
    gap = gap[np.isfinite(gap)]
    half = 1.96 * float(gap.std(ddof=1)) / len(gap) ** 0.5 if len(gap) > 1 else None
    return {
        "model": second.name,
        "seconds": second.seconds,
        **second.metrics.as_json(),
        "difference": {"mean": float(gap.mean()), "half_width_95": half, "examples": len(gap)},
    }


def _print_difference(compared: dict[str, Any]) -> None:
    from backfield.cli._console import console

    found = compared["difference"]
    width = "" if found["half_width_95"] is None else f" +- {100 * found['half_width_95']:.2f} (95 %)"
    better = "fewer" if found["mean"] < 0 else "more"
    text = f"{compared['model']} makes {100 * abs(found['mean']):.2f}{width} points {better} errors"
    console().print(f"{text}, mean of {found['examples']} examples")


def _print(model: Path | None, data: Data, found: Judged) -> None:
    import numpy as np
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console
    from backfield.metrics.conlleval import conlleval

    out, metrics = console(), found.metrics
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
        out.print(escape(conlleval(metrics)), highlight=False, soft_wrap=True)
    if metrics.spans is not None:
        out.print(f"expected calibration error of spans {metrics.spans.error:.4f}")
    out.print(f"expected calibration error {metrics.ece:.4f}  log loss {metrics.log_loss:.4f}")
    out.print(f"{found.seconds:.3g} s, {1000 * found.seconds / max(1, len(data)):.3g} ms per {example}")


def _write(path: Path, judged: list[Judged], data: Data) -> None:
    from backfield.report import write_report

    example, variable = data.unit
    metrics = judged[0].metrics
    known = f"{metrics.n_variables:,} labelled {variable}s"
    names = " and ".join(each.name for each in judged)
    write_report(
        path,
        f"{names} on {data.path.name}",
        [f"{len(data)} {example}s, {known}, {len(metrics.classes)} classes."],
        [_result(each) for each in judged],
        _examples(judged, data),
        _sentences(judged[0], data) if data.format.shows == "sentences" else (),
        {"models": names, "data": data.path, "examples": len(data), f"labelled {variable}s": f"{metrics.n_variables:,}"},
    )


def _result(judged: Judged) -> ModelResult:
    from backfield.cli._models import settings_of
    from backfield.report import ModelResult

    trace = judged.crf.trace_
    seconds = {"fit": trace[-1]["seconds"]} if trace and "seconds" in trace[-1] else {}
    settings = settings_of(judged.crf, judged.preprocessing)
    return ModelResult(judged.name, judged.metrics, trace, settings, seconds | {"predict": judged.seconds})


def _examples(judged: list[Judged], data: Data) -> list[Example]:
    """Return all examples with their errors; the worst, and those with the commonest confusions, have pictures."""
    from backfield.report import Example
    from backfield.report.gallery import chosen, layers

    errors = zip(*(each.errors for each in judged), strict=True)
    found = [Example(data.names[k], each, judged[0].confusions[k]) for k, each in enumerate(errors)]
    if data.format.shows not in ("pictures", "slices"):
        return found
    assert data.labels is not None
    shown = chosen(found)
    predictions = {each.name if len(judged) > 1 else "": each.predictions(shown) for each in judged}
    classes = judged[0].metrics.classes
    for k in shown:
        guesses = {name: (_positions(of[k][0], classes), of[k][1]) for name, of in predictions.items()}
        image, truth = data.inputs[k], _positions(data.labels[k], classes)
        if data.format.shows == "slices":
            image, truth, guesses = _sliced(image, truth, guesses)
        found[k] = found[k]._replace(pictures=layers(image, truth, guesses, judged[0].crf.classes_))
    return found


def _sliced(volume: Any, truth: Any, guesses: dict[str, tuple[Any, Any]]) -> tuple[Any, Any, dict[str, tuple[Any, Any]]]:
    """Return three orthogonal slices of a volume, its truth and its predictions, each as one image."""
    from backfield.report.slices import Slices

    slices = Slices.through_errors(truth, next(iter(guesses.values()))[0])
    flat = {name: (slices.montage(labels, 0), slices.montage(p, 0)) for name, (labels, p) in guesses.items()}
    return slices.picture(volume), slices.montage(truth, -1), flat


def _sentences(judged: Judged, data: Data) -> list[TaggedSentence]:
    """Return the worst sentences of a page's width."""
    import numpy as np

    from backfield.report import TaggedSentence

    assert data.labels is not None
    fitting = [k for k in range(len(data)) if 4 <= len(data.inputs[k]) <= 40] or list(range(len(data)))
    shown = sorted(fitting, key=lambda k: -np.nan_to_num(judged.errors[k], nan=-1.0))[:N_SENTENCES]
    return [
        TaggedSentence(
            [token[0] for token in data.inputs[k]],
            [str(tag) for tag in data.labels[k]],
            [str(tag) for tag in labels],
            [float(p.max()) for p in probabilities],
        )
        for k, (labels, probabilities) in judged.predictions(shown).items()
    ]
