"""Small data, fitted models, and what campaigns share."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np

import backfield as bf
from backfield.cli.app import run as run_command
from backfield.errors import InputError

Case = Callable[[], Any]
#: Short fits of the learners that write a checkpoint themselves, on images; others write those of their parts.
LEARNERS: dict[str, dict[str, Any]] = {
    "lbfgs": {"learner": "lbfgs(max_iter=6)"},
    "owlqn": {"learner": "owlqn(max_iter=6, l1=0.001)"},
    "sgd": {"learner": "sgd(epochs=4, batch_size=1, average=True)"},
    "smd": {"learner": "smd(epochs=4, batch_size=2)"},
    "ascent": {"learner": "ascent(max_iter=6)"},
    "frank_wolfe": {"learner": "frank_wolfe(epochs=4)", "loss": "max_margin", "inference": "exact", "l2": 0.01},
    "perceptron": {"learner": "perceptron(epochs=4)", "loss": "max_margin(scale=0.0)", "inference": "exact", "l2": 0.0},
    "passive_aggressive": {"learner": "passive_aggressive(epochs=4)", "loss": "max_margin", "inference": "exact", "l2": 0.0},
    "oracle_descent": {"learner": "oracle_descent(n_rounds=4, sweeps=3)", "inference": "smoothed_lp(n_iter=3)"},
}


def images(seed: int = 0, count: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return small images of two channels and their masks."""
    rng = np.random.default_rng(seed)
    masks = [(rng.random((8, 9)) < 0.5).astype(np.int64) for _ in range(count)]
    return [np.stack([m + rng.normal(0, 0.5, m.shape), rng.normal(size=m.shape)], axis=2) for m in masks], masks


def sentences() -> tuple[list[list[dict[str, float]]], list[list[str]]]:
    """Return a few sentences with named features, and their tags."""
    words = [["the", "dog", "runs"], ["a", "cat", "sleeps", "now"], ["dogs", "run"]]
    tags = [["D", "N", "V"], ["D", "N", "V", "A"], ["N", "V"]]
    return [[{f"w={w}": 1.0, "bias": 1.0, f"s={w[-1]}": 0.5} for w in each] for each in words], tags


def fitted() -> dict[str, tuple[Any, Any]]:
    """Return small fitted models and an input of each."""
    X, y = images()
    grid = bf.GridCRF(learner="lbfgs(max_iter=5)").fit(X, y)
    words, tags = sentences()
    chain = bf.ChainCRF(unary="observed_linear", learner="lbfgs(max_iter=5)").fit(words, tags)
    graph = bf.Graph.from_edges([[0, 1], [1, 2]], labels=2)
    sample = bf.Sample(graph, np.eye(3), np.ones((2, 1)))
    quick = {"learner": "lbfgs(max_iter=3)"}
    volumes, table = [np.stack([x, x]) for x in X], np.random.default_rng(0).normal(size=(20, 3))
    trees = {"unary": "boosted_trees", "learner": "oracle_descent(n_rounds=2)", "inference": "smoothed_lp(n_iter=3)"}
    return {
        "grid": (grid, X),
        "chain": (chain, words),
        "graph": (bf.GraphCRF().fit([sample], [[0, 1, 1]]), [sample]),
        "order two": (bf.ChainCRF(order=2, constraints=[("D", "V")], **quick).fit(words, tags), words),
        "volume": (bf.VolumeCRF(**quick).fit(volumes, [np.stack([m, m]) for m in y]), volumes),
        "dense": (bf.DenseCRF(**quick).fit(X, y), X),
        "sets": (bf.MultiLabelCRF(**quick).fit(table, (table > 0).astype(int)), table),
        "trees": (bf.GridCRF(**trees).fit(X, y), X),
    }


def same(a: Any, b: Any) -> bool:
    """Whether two lists of arrays are equal."""
    return len(a) == len(b) and all(np.array_equal(np.asarray(p), np.asarray(q)) for p, q in zip(a, b, strict=True))


def command(*arguments: Any) -> None:
    """Run a command line; a refusal becomes an InputError, anything but one line an error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = run_command([str(each) for each in arguments])
    text = errors.getvalue()
    if "Traceback" in text or "failed with" in text or code not in (0, 1, 2):
        raise RuntimeError(f"exit code {code}: {text[-500:]}")
    if code:
        raise InputError(" ".join(text.split())[:200] or "refused")
