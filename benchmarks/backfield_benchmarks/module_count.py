"""Count the modules of backfield that one ``GridCRF.fit`` passes, from the call to the kernels and back.

    python -m backfield_benchmarks.module_count [--model grid|chain|graph] [--limit 25]

A module counts if one of its Python functions is called between the call of ``fit`` and its return (``sys.setprofile``;
imports that happen meanwhile do not count, nor do kernels, which are no Python, and what compiles them). Exits with 1
above ``--limit``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import backfield as bf

ROOT = Path(bf.__file__).parent


def modules_of(call: Any) -> Counter[str]:
    """Return how often functions of each module of backfield are called while ``call()`` runs."""
    found: Counter[str] = Counter()
    inside = f"{ROOT}{os.sep}"  # a Path for every call of every library would take longer than the calls

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(inside) or frame.f_code.co_name == "<module>" or _importing(frame):
            return
        found[".".join(Path(name).relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def _importing(frame: FrameType | None) -> bool:
    """Whether a call belongs to an import (a module's or a class's body, what these or the import call) or to numba."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib") or "/numba/core/" in frame.f_code.co_filename:
            return True
        if frame.f_code.co_name == "<module>":
            return Path(frame.f_code.co_filename).is_relative_to(ROOT)
        frame = frame.f_back
    return False


def example(model: str) -> tuple[Any, list[Any], list[Any]]:
    """Return a model and data to fit it to."""
    rng = np.random.default_rng(0)
    if model == "chain":
        X = [rng.normal(size=(6, 3)) for _ in range(8)]
        return bf.ChainCRF(), X, [(x[:, 0] > 0).astype(int) for x in X]
    X = [rng.normal(size=(12, 10, 3)) for _ in range(4)]
    y = [(x[:, :, 0] > 0).astype(int) for x in X]
    if model == "graph":
        graph = bf.Graph.grid(12, 10, labels=2)
        return bf.GraphCRF(), [bf.Sample(graph, x.reshape(-1, 3)) for x in X], [each.reshape(-1) for each in y]
    return bf.GridCRF(), X, y


def main() -> int:
    """Print the modules with their numbers of calls, and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("grid", "chain", "graph"), default="grid")
    parser.add_argument("--limit", type=int, default=25)
    options = parser.parse_args()
    model, X, y = example(options.model)
    found = modules_of(lambda: model.fit(X, y))
    for name, calls in sorted(found.items()):
        print(f"{calls:8d}  {name}")
    print(f"{len(found)} modules of backfield between the call of {type(model).__name__}.fit and its return")
    return int(len(found) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
