"""How a model looks: a table of its variables, and a picture of its graph."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from backfield.errors import InputError

if TYPE_CHECKING:
    from backfield.models.model import Model

#: Variables and states that the table shows.
MAX_ROWS, MAX_STATES = 60, 6


def html(model: Model) -> str:
    """Return a table of the variables: name, states, and parents or neighbours."""
    near = _neighbours(model)
    rows = []
    for i, (name, states) in enumerate(list(model.states.items())[:MAX_ROWS]):
        shown = ", ".join(map(str, states[:MAX_STATES])) + (f", ... ({len(states)})" if len(states) > MAX_STATES else "")
        around = ", ".join(model.parents(name) if model.is_directed else [model.names[j] for j in sorted(near[i])])
        rows.append(f"<tr><td>{escape(name)}</td><td>{escape(shown)}</td><td>{escape(around)}</td></tr>")
    more = f"<p>... and {len(model.names) - MAX_ROWS} more variables</p>" if len(model.names) > MAX_ROWS else ""
    third = "parents" if model.is_directed else "neighbours"
    head = f"<tr><th>variable</th><th>states</th><th>{third}</th></tr>"
    return f"<p>{escape(repr(model))}</p><table>{head}{''.join(rows)}</table>{more}"


def _neighbours(model: Model) -> list[set[int]]:
    out: list[set[int]] = [set() for _ in model.names]
    for scope in model.theta.graph.factors:
        for i in scope:
            out[int(i)].update(int(j) for j in scope if j != i)
    return out


def draw(model: Model, ax: Any = None) -> Any:
    """Draw the variables as names and the factors as arrows (directed) or lines."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError("plot needs matplotlib: pip install 'backfield[plots]'.") from error
    near = _neighbours(model)
    place = _layered(model) if model.is_directed else _springs(near)
    if ax is None:
        size = max(4.0, 0.9 * len(near) ** 0.5 + 2)
        _, ax = pyplot.subplots(figsize=(1.5 * size, size))
    style = "-|>" if model.is_directed else "-"
    for a, b in _arrows(model, near):
        ax.annotate("", place[b], place[a], arrowprops={"arrowstyle": style, "color": "0.6", "shrinkA": 12, "shrinkB": 12})
    for name, (x, y) in zip(model.names, place, strict=True):
        ax.text(x, y, name, ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": "0.3"})
    low, high = place.min(axis=0) - 0.5, place.max(axis=0) + 0.5
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.axis("off")
    return ax


def _arrows(model: Model, near: list[set[int]]) -> list[tuple[int, int]]:
    if not model.is_directed:
        return [(a, b) for a, around in enumerate(near) for b in around if a < b]
    number = {name: i for i, name in enumerate(model.names)}
    return [(number[parent], i) for i, name in enumerate(model.names) for parent in model.parents(name)]


def _layered(model: Model) -> np.ndarray:
    """Put each variable one layer below its lowest parent, near the mean of its parents."""
    depth: dict[str, int] = {}
    pending = list(model.names)
    while pending:
        ready = [name for name in pending if all(parent in depth for parent in model.parents(name))]
        depth.update({name: 1 + max((depth[parent] for parent in model.parents(name)), default=-1) for name in ready})
        pending = [name for name in pending if name not in depth]
    across: dict[str, float] = {}
    for level in range(max(depth.values()) + 1):
        layer = [name for name in model.names if depth[name] == level]
        wish = {name: np.mean([across[parent] for parent in model.parents(name)] or [0.0]) for name in layer}
        for k, name in enumerate(sorted(layer, key=lambda name: wish[name])):
            across[name] = k - (len(layer) - 1) / 2
    return np.array([(2.0 * across[name], -float(depth[name])) for name in model.names])


def _springs(near: list[set[int]]) -> np.ndarray:
    """Place neighbours close and others apart, from a circle on (Fruchterman and Reingold 1991)."""
    n = len(near)
    angle = 2 * np.pi * np.arange(n) / n
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1) * n**0.5
    linked = np.zeros((n, n))
    for a, around in enumerate(near):
        linked[a, list(around)] = 1
    for step in np.linspace(0.5, 0.01, 100):
        gap = place[:, None] - place[None]
        distance = np.maximum(np.sqrt((gap**2).sum(axis=-1)), 1e-3)
        force = (gap * (2.0 / distance**2 - linked * distance / 2.0)[..., None]).sum(axis=1)
        place += step * force / np.maximum(np.sqrt((force**2).sum(axis=-1, keepdims=True)), 1e-9)
    return place
