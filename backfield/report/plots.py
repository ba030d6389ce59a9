"""Charts as SVG text, with no library and no outside resources. Colours come from the page's style, see ``html.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from backfield.metrics.tally import Calibration

WIDTH, HEIGHT = 280, 196
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 10, 38
#: A chart whose values span more than this factor has a logarithmic axis.
LOG_FROM = 2.5
#: Confusions of more classes than this have no numbers in their cells.
MAX_NUMBERED = 12


class Line(NamedTuple):
    """A line of a chart: its name, points, and which of the page's colours it has."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    dashed: bool = False


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, title: str) -> str:
    """Return lines over common axes; points that are not finite are left out, and the last point of a line is marked."""
    kept = [_finite_points(line) for line in lines]
    kept = [line for line in kept if len(line.x)]
    if not kept:
        return ""
    xs = [x for line in kept for x in line.x]
    ys = [y for line in kept for y in line.y]
    log = min(ys) > 0 and max(ys) / min(ys) > LOG_FROM
    axes = _Axes(
        _padded(min(xs), max(xs), 0.0), (0.94 * min(ys), 1.1 * max(ys)) if log else _padded(min(ys), max(ys), 0.06), log
    )
    parts = [axes.frame(x_label, y_label)]
    for line in kept:
        points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(f'<polyline class="line c{line.colour}"{dash} points="{points}"/>')
        x, y = line.x[-1], line.y[-1]
        label = escape(f"{line.name}: {y:.4g} at {x:.4g}")
        place = f'cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}"'
        parts.append(f'<circle class="dot c{line.colour}" {place} r="3"><title>{label}</title></circle>')
    return _svg("".join(parts), title)


def calibration_chart(found: Calibration, colour: int, title: str) -> str:
    """Return confidence against accuracy: bars from the bins, the diagonal, and the share of variables below."""
    used = found.share > 0
    low = math.floor(10 * float(found.confidence[used].min())) / 10 if used.any() else 0.0
    axes = _Axes((low, 1.0), (0.0, 1.0))
    parts = [axes.frame("confidence", "accuracy")]
    step = 1.0 / len(found.edges)
    largest = float(found.share.max())
    for edge, mean, accuracy, share in zip(*found[:4], strict=True):
        if share == 0:
            continue
        left = axes.x(max(edge, low))
        width = max(axes.x(edge + step) - left, 3.0)
        bar = 0.22 * share / largest
        note = f"confidence {mean:.3f}, accuracy {accuracy:.3f}, {100 * share:.1f} % of variables"
        parts.append(
            f'<rect class="share" x="{left + 1:.1f}" y="{axes.y(bar):.1f}" width="{width - 2:.1f}" '
            f'height="{axes.y(0) - axes.y(bar):.1f}"><title>{note}</title></rect>'
        )
    parts.append(f'<path class="ideal" d="M{axes.x(low)},{axes.y(low)}L{axes.x(1)},{axes.y(1)}"/>')
    pairs = [(m, a, s) for m, a, s in zip(found.confidence, found.accuracy, found.share, strict=True) if s > 0]
    points = " ".join(f"{axes.x(m):.1f},{axes.y(a):.1f}" for m, a, _ in pairs)
    parts.append(f'<polygon class="band c{colour}" points="{_band(found, axes)}"/>')
    parts.append(f'<polyline class="line c{colour}" points="{points}"/>')
    for mean, accuracy, share in pairs:
        radius = 2.0 + 4.0 * math.sqrt(share / largest)
        parts.append(
            f'<circle class="dot c{colour}" cx="{axes.x(mean):.1f}" cy="{axes.y(accuracy):.1f}" r="{radius:.1f}">'
            f"<title>confidence {mean:.3f}, accuracy {accuracy:.3f}</title></circle>"
        )
    return _svg("".join(parts), title)


def _band(found: Calibration, axes: _Axes) -> str:
    """Return the outline of the 95 % intervals of the accuracy, over examples."""
    used = found.share > 0
    x, a, s = found.confidence[used], found.accuracy[used], 1.96 * found.spread[used]
    lower = zip(x, np.clip(a - s, 0, 1), strict=True)
    upper = reversed(list(zip(x, np.clip(a + s, 0, 1), strict=True)))
    return " ".join(f"{axes.x(u):.1f},{axes.y(v):.1f}" for u, v in [*lower, *upper])


def confusion_chart(confusion: np.ndarray, classes: Sequence[Any], title: str, link: bool = False) -> str:
    """Return the confusion matrix: rows are the truth, shades the share of the row; ``link``: a click shows examples."""
    n = len(classes)
    cell = max(14.0, min(58.0, 320.0 / n))
    names = [str(label) for label in classes]
    longest = min(12, max(len(name) for name in names))
    left, top = 30 + 6.2 * longest, 40 if n <= MAX_NUMBERED else 26 + 5.4 * longest
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    middle = (left + n * cell / 2, top + n * cell / 2)
    parts = [
        f'<text class="axis" x="{middle[0]:.0f}" y="12" text-anchor="middle">prediction</text>',
        f'<text class="axis" transform="translate(12,{middle[1]:.0f}) rotate(-90)" text-anchor="middle">truth</text>',
    ]
    for i, name in enumerate(names):
        x, y = left + (i + 0.5) * cell, top + (i + 0.5) * cell
        short = escape(name if len(name) <= 12 else name[:11] + "…")
        turned = f'transform="translate({x + 3:.1f},{top - 6:.1f}) rotate(-60)"' if n > MAX_NUMBERED else ""
        above = turned or f'x="{x:.1f}" y="{top - 8:.1f}" text-anchor="middle"'
        parts.append(f'<text class="tick" {above}>{short}</text>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{y + 3.5:.1f}" text-anchor="end">{short}</text>')
    for i in range(n):
        for j in range(n):
            place = (left + j * cell, top + i * cell)
            parts.append(
                _cell(
                    place,
                    cell,
                    share[i, j],
                    confusion[i, j],
                    (names[i], names[j]),
                    f'data-cell="{i},{j}"' if link else "",
                    n,
                )
            )
    return _svg("".join(parts), title, left + n * cell + 6, top + n * cell + 6, "fixed")


def _cell(
    place: tuple[float, float], size: float, share: float, count: int, names: tuple[str, str], link: str, n: int
) -> str:
    x, y = place
    note = escape(f"{names[0]} predicted as {names[1]}: {count} ({100 * share:.1f} %)")
    out = (
        f'<rect class="cell" {link} x="{x:.1f}" y="{y:.1f}" rx="2" '
        f'width="{size - 1:.1f}" height="{size - 1:.1f}" '
        f'style="fill-opacity:{0.06 + 0.94 * share:.3f}"><title>{note}</title></rect>'
    )
    if n <= MAX_NUMBERED:
        shade = "dark" if share < 0.55 else "light"
        text = f"{100 * share:.1f}" if size > 30 else f"{100 * share:.0f}"
        centre = f'x="{x + size / 2:.1f}" y="{y + size / 2 + 4:.1f}" text-anchor="middle"'
        out += f'<text class="number {shade}" {centre}>{text}</text>'
    return out


class _Axes:
    """From values to places in the picture."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], log: bool = False) -> None:
        self.x_range, self.y_range, self.log = x, y, log

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def frame(self, x_label: str, y_label: str) -> str:
        parts = []
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for tick in log_ticks(*self.y_range) if self.log else ticks(*self.y_range, 5):
            y = self.y(tick)
            parts.append(f'<path class="grid" d="M{LEFT},{y:.1f}H{right}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{tick:.6g}</text>')
        for tick in ticks(*self.x_range, 5):
            x = self.x(tick)
            parts.append(f'<path class="grid" d="M{x:.1f},{bottom}v4"/>')
            parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:.6g}</text>')
        middle = (LEFT + right) / 2
        parts.append(f'<path class="base" d="M{LEFT},{bottom}H{right}"/>')
        parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
        turned = f'transform="translate(11,{(TOP + bottom) / 2:.0f}) rotate(-90)"'
        parts.append(f'<text class="axis" {turned} text-anchor="middle">{escape(y_label)}</text>')
        return "".join(parts)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers between two."""
    raw = (high - low) / max(1, count)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, about evenly apart in their logarithms: fewer per power of ten if these are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 1.5, 2, 3, 4, 6, 8) if high / low < 8 else (1, 2, 5) if high / low < 1000 else (1,)
    found = [m * 10.0**k for k in powers for m in factors]
    return [tick for tick in found if low <= tick <= high]


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    if high - low <= 1e-12 * max(1.0, abs(high)):
        return low - 0.5, high + 0.5
    pad = share * (high - low)
    return low - pad, high + pad


def _finite_points(line: Line) -> Line:
    pairs = [(float(x), float(y)) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    return line._replace(x=[x for x, _ in pairs], y=[y for _, y in pairs])


def _svg(content: str, title: str, width: float = WIDTH, height: float = HEIGHT, kind: str = "wide") -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{content}</svg>'
    )
