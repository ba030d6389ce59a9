"""A report as one HTML file that needs nothing else: tables, charts, pictures, settings and timings."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.atomic import write_text
from backfield.metrics.tally import Metrics
from backfield.report import gallery
from backfield.report.gallery import Example
from backfield.report.pictures import PALETTE
from backfield.report.plots import Line, calibration_chart, confusion_chart, line_chart

N_COLOURS = 6
#: Most classes in the tables of classes and confusions.
MAX_CLASSES = 40


@dataclass(frozen=True)
class ModelResult:
    """One model on the test data: its scores, how it was trained, its settings, and seconds by name."""

    name: str
    metrics: Metrics
    trace: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class TaggedSentence(NamedTuple):
    """Tokens with true (or "": hidden) and predicted labels, and the confidence in the latter."""

    tokens: Sequence[str]
    truth: Sequence[str]
    predicted: Sequence[str]
    confidence: Sequence[float]


def write_report(
    path: str | Path,
    title: str,
    about: Sequence[str],
    results: Sequence[ModelResult],
    examples: Sequence[Example] = (),
    sentences: Sequence[TaggedSentence] = (),
    settings: dict[str, Any] | None = None,
) -> None:
    """Write a report.

    Parameters
    ----------
    path
        The file.
    title, about
        What the report is about, and sentences that say it.
    results
        One per model; the first is what others are compared to.
    examples, sentences
        Test examples, all of them: those with pictures are shown, the worst first. Sentences are shown as they come.
    settings
        What all models have in common.
    """
    sections = [
        ("Results", _results(results), ""),
        ("Pictures", _pictures(examples, results), _PICTURES),
        ("Sentences", _sentences(sentences), "Wrong labels are struck out; the true ones stand beside them."),
        ("Learning curves", _curves(results), _CURVES),
        ("Calibration", _calibrations(results), _CALIBRATION),
        ("Confusion", _confusions(results) + gallery.cells(examples), _CONFUSION + _CLICK * bool(examples)),
        ("Classes", _classes(results), ""),
        ("Examples", gallery.table(examples, [r.name for r in results], _classes_of(results)), "Click a heading to sort."),
        ("Settings and timings", _settings(results, settings or {}), ""),
    ]
    write_page(path, title, about, sections)


def write_page(path: str | Path, title: str, about: Sequence[str], sections: Sequence[tuple[str, str, str]]) -> None:
    """Write a page of sections: (title, HTML, a sentence that leads in); empty ones are left out."""
    from backfield import __version__

    page, script = (
        files("backfield.report").joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.js")
    )
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    values = {
        "title": escape(title),
        "about": "".join(f"<p>{escape(text)}</p>" for text in about),
        "content": "".join(_section(*section) for section in sections),
        "script": script,
        "foot": f"backfield {escape(__version__)}, {now}",
    }
    for key, value in values.items():
        page = page.replace("{{" + key + "}}", value)
    write_text(path, page)


_PICTURES = "Worst first. Click a picture to enlarge it; arrow keys flip through its layers and on to other examples."
_CONFUSION = "Shares of each true class, in per cent."
_CLICK = " Click a cell to see the pictures that have this confusion."
_CURVES = "What each model minimises, by iteration, and the share of wrong labels on the training data."
_CALIBRATION = (
    "Of the variables whose label a model gives the probability p, a share of p should have it (dashed). Dots are bins of "
    "confidence, their size and the bars below how many variables are in them, the band a 95 % interval over examples. ECE, "
    "the expected calibration error, is the mean distance from the dashed line."
)


_TIMES = "Times leave compiling out."


def _section(title: str, content: str, lead: str = "") -> str:
    if not content:
        return ""
    return f"<section><h2>{title}</h2>{f'<p class=lead>{escape(lead)}</p>' if lead else ''}{content}</section>"


def _results(results: Sequence[ModelResult]) -> str:
    """Return the table of models, the best number of each column in bold."""
    base = results[0].metrics.error if results else 0.0
    columns: list[tuple[str, list[float], str, int]] = [
        ("error", [100 * r.metrics.error for r in results], "{:.2f} %", -1),
        (
            "change",
            [100 * (r.metrics.error / base - 1) if k and base else math.nan for k, r in enumerate(results)],
            "{:+.0f} %",
            0,
        ),
        ("mean IoU", [r.metrics.mean_iou for r in results], "{:.3f}", 1),
        ("mean F1", [r.metrics.macro_f1 for r in results], "{:.3f}", 1),
        ("chunk F1", [100 * r.metrics.chunks.f1 if r.metrics.chunks else math.nan for r in results], "{:.2f}", 1),
        ("ECE", [_number(r.metrics.ece) for r in results], "{:.4f}", -1),
        ("log loss", [_number(r.metrics.log_loss) for r in results], "{:.4f}", -1),
        ("seconds to fit", [_number(r.seconds.get("fit")) for r in results], "{:.1f}", 0),
        ("to predict", [_number(r.seconds.get("predict")) for r in results], "{:.2f}", 0),
    ]
    columns = [column for column in columns if not all(math.isnan(value) for value in column[1])]
    head = "".join(f"<th class=n>{name}</th>" for name, *_ in columns)
    body = ""
    for k, result in enumerate(results):
        cells = ""
        for _, values, form, sign in columns:
            top = max(sign * v for v in values if not math.isnan(v))
            best = len(results) > 1 and sign and sign * values[k] == top
            text = form.format(values[k]) if not math.isnan(values[k]) else "–"
            cells += f"<td class=n>{f'<b>{text}</b>' if best else text}</td>"
        body += f"<tr><td>{_key(k, results)}{escape(result.name)}</td>{cells}</tr>"
    note = (
        f"<p class=note>{results[0].metrics.n_variables:,} labelled variables in the test data. {_TIMES}</p>"
        if results
        else ""
    )
    return f"<div class=scroll><table><tr><th></th>{head}</tr>{body}</table></div>{note}"


def _pictures(examples: Sequence[Example], results: Sequence[ModelResult]) -> str:
    shown = gallery.gallery(examples)
    return shown + _legend(results[0].metrics.classes) if shown and results else shown


def _classes_of(results: Sequence[ModelResult]) -> Sequence[Any]:
    return results[0].metrics.classes if results else ()


def _legend(classes: Sequence[Any]) -> str:
    if len(classes) > len(PALETTE):
        return ""
    colours = [",".join(f"{value:.0f}" for value in colour) for colour in PALETTE]
    items = (
        f'<span><i style="background:rgb({c})"></i>{escape(str(n))}</span>' for n, c in zip(classes, colours, strict=False)
    )
    return f"<p class=legend>{''.join(items)}</p>"


def _sentences(sentences: Sequence[TaggedSentence]) -> str:
    out = ""
    for sentence in sentences:
        words = ""
        for token, truth, guess, p in zip(*sentence, strict=True):
            wrong = truth not in ("", guess)
            below = f"<s>{escape(guess)}</s> {escape(truth)}" if wrong else escape(guess)
            note = escape(f"{guess}: {p:.3f}")
            kind = "word wrong" if wrong else "word"
            words += f'<span class="{kind}" title="{note}">{escape(token)}<small>{below}</small></span>'
        out += f"<p class=sentence>{words}</p>"
    return out


def _curves(results: Sequence[ModelResult]) -> str:
    charts = []
    for k, result in enumerate(results):
        steps = [row["iteration"] for row in result.trace]
        lines = [Line("training", steps, _column(result.trace, "objective"), _colour(k, results))]
        if any("validation" in row for row in result.trace):
            lines.append(Line("validation", steps, _column(result.trace, "validation"), _colour(k, results), dashed=True))
        chart = line_chart(lines, "iteration", "objective", f"objective of {result.name}")
        dashed = "; validation dashed" if len(lines) > 1 else ""
        charts.append((f"{_key(k, results)}{escape(result.name)}{dashed}", chart))
    errors = [
        Line(result.name, [row["iteration"] for row in result.trace], _column(result.trace, "error"), _colour(k, results))
        for k, result in enumerate(results)
    ]
    charts.append(("training error", line_chart(errors, "iteration", "error", "training error")))
    return _charts(charts)


def _calibrations(results: Sequence[ModelResult]) -> str:
    charts = []
    for k, result in enumerate(results):
        if result.metrics.calibration is not None:
            chart = calibration_chart(result.metrics.calibration, _colour(k, results), f"calibration of {result.name}")
            charts.append((f"{_key(k, results)}{escape(result.name)}<span>ECE {result.metrics.ece:.4f}</span>", chart))
        if result.metrics.spans is not None:
            spans = result.metrics.spans
            chart = calibration_chart(spans, _colour(k, results), f"calibration of the spans of {result.name}")
            charts.append((f"{_key(k, results)}{escape(result.name)}, spans<span>ECE {spans.error:.4f}</span>", chart))
    return _charts(charts)


def _confusions(results: Sequence[ModelResult]) -> str:
    if not results or len(results[0].metrics.classes) > MAX_CLASSES:
        return ""
    return _charts(
        [
            (
                f"{_key(k, results)}{escape(r.name)}",
                confusion_chart(r.metrics.confusion, r.metrics.classes, f"confusion of {r.name}", link=k == 0),
            )
            for k, r in enumerate(results)
        ]
    )


def _classes(results: Sequence[ModelResult]) -> str:
    """Return the table of classes of each model, or, of more than two, of the last, which is the one to look at."""
    shown = results if len(results) <= 2 else results[-1:]
    first = len(results) - len(shown)
    return "".join(_class_table(first + k, results) for k in range(len(shown)))


def _class_table(number: int, results: Sequence[ModelResult]) -> str:
    metrics = results[number].metrics
    heads = ("variables", "error", "precision", "recall", "F1", "IoU")
    head = "".join(f"<th class=n data-sort>{name}</th>" for name in heads)
    body = ""
    columns = (metrics.class_error, metrics.precision, metrics.recall, metrics.f1, metrics.iou)
    seen = [k for k in np.argsort(-metrics.support, kind="stable") if not np.isnan(metrics.iou[k])]
    for k in seen[:MAX_CLASSES]:
        cells = "".join(f"<td class=n>{'–' if np.isnan(c[k]) else f'{c[k]:.3f}'}</td>" for c in columns)
        body += f"<tr><td>{escape(str(metrics.classes[k]))}</td><td class=n>{metrics.support[k]:,}</td>{cells}</tr>"
    name = f"<p class=lead>{_key(number, results)}{escape(results[number].name)}</p>" if len(results) > 1 else ""
    more = len(metrics.classes) - min(len(seen), MAX_CLASSES)
    note = f"<p class=note>{more} more classes, fewer in the data or not at all.</p>" if more > 0 else ""
    top = f"<thead><tr><th data-sort>class</th>{head}</tr></thead>"
    return f"{name}<div class=scroll><table class=sortable>{top}<tbody>{body}</tbody></table></div>{note}"


def _settings(results: Sequence[ModelResult], common: dict[str, Any]) -> str:
    rows = [("all models" if len(results) > 1 else "data", common)] if common else []
    out = ""
    for k, (name, settings) in enumerate(rows + [(r.name, r.settings) for r in results]):
        key = _key(k - len(rows), results) if k >= len(rows) else ""
        items = dict(settings)
        if k >= len(rows):
            items |= {f"seconds to {what}": f"{value:.3g}" for what, value in results[k - len(rows)].seconds.items()}
        pairs = "".join(f"<dt>{escape(str(a))}</dt><dd>{escape(str(b))}</dd>" for a, b in items.items())
        out += f"<div class=card><h3>{key}{escape(name)}</h3><dl>{pairs}</dl></div>"
    return f"<div class=cards>{out}</div>"


def _charts(charts: Sequence[tuple[str, str]]) -> str:
    shown = [f"<figure><figcaption>{caption}</figcaption>{chart}</figure>" for caption, chart in charts if chart]
    return f"<div class=charts>{''.join(shown)}</div>" if shown else ""


def _colour(k: int, results: Sequence[ModelResult]) -> int:
    """Return which of the page's colours a model has; the first is grey, being what others are compared to."""
    return 2 if len(results) == 1 else k % N_COLOURS


def _key(k: int, results: Sequence[ModelResult]) -> str:
    return f'<i class="key c{_colour(k, results)}"></i>'


def _column(trace: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [_number(row.get(name)) for row in trace]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
