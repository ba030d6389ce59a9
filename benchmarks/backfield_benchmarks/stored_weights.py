"""Values and gradients at five stored weight vectors, and ends of short fits: written by one version, compared with another.

    cd CLONE/benchmarks
    PYTHONPATH=OLD:. python -m backfield_benchmarks.stored_weights write stored_weights.json --data DATA
    PYTHONPATH=NEW:. python -m backfield_benchmarks.stored_weights compare stored_weights.json --data DATA

Models are those of the demo (grids), CoNLL-2000 (the first 300 sentences) and a graph with types, edge features and factors
of three variables, in float64 and float32. Of a gradient, 50 entries, the norm, the largest entry and a hash are kept. Uses
public names only, so any version of the library can run it. ``compare`` exits with 1 if a number is further off than
LIMITS allows, and says of each model whether all bytes are equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import backfield as bf
from backfield.datasets import conll
from backfield.datasets.generated import denoising
from backfield_benchmarks.probe import problem_of

DTYPES = ("float64", "float32")
#: Largest relative difference of values and gradients at stored weights, by type.
LIMITS = {"float64": 1e-10, "float32": 1e-5}
#: Largest relative difference of the objective at the end of a fit.
FIT_LIMIT = 1e-6
N_VECTORS, N_ENTRIES, N_SENTENCES = 5, 50, 300
Record = dict[str, Any]


class Model(NamedTuple):
    """An estimator without a learner, and its data."""

    estimator: Callable[..., Any]
    settings: dict[str, Any]
    X: Any
    y: Any
    #: The learner of the short fit; without one there is no fit.
    learner: str | None = "lbfgs(max_iter=15)"


def models(data: Path | None) -> Iterator[tuple[str, Callable[[], Model]]]:
    """Yield names and functions that make the models."""
    trw = "tree_reweighted(n_iter={})"
    yield "demo, univariate logistic", lambda: _demo(inference=trw.format(5), loss="univariate_logistic")
    yield "demo, likelihood", lambda: _demo(inference=trw.format(30), loss="surrogate_likelihood", gradient=None)
    yield "demo, mean field", lambda: _demo(inference="mean_field(n_iter=5)", loss="clique_logistic")
    yield "graph, clique logistic", lambda: _graph(inference=trw.format(6), loss="clique_logistic")
    yield "graph, loopy BP", lambda: _graph(inference="loopy_bp(n_iter=6)", loss="univariate_logistic")
    yield "graph, pseudolikelihood", lambda: _graph(loss="pseudolikelihood")
    yield "conll, likelihood", lambda: _conll(data, "lbfgs(max_iter=15)")
    yield "conll, max margin", lambda: _conll(data, None, loss="max_margin", decoder="map")


def _demo(**settings: Any) -> Model:
    made = denoising(4, 60, 0, sd=6.0)
    X = [bf.GridSample(*each) for each in zip(made.features, made.horizontal, made.vertical, strict=True)]
    return Model(bf.GridCRF, {"l2": 1e-4, **settings}, X, made.masks)


def _conll(data: Path | None, learner: str | None, **settings: Any) -> Model:
    read = conll.load(data)
    X = [conll.window_features(sentence) for sentence in read.train[:N_SENTENCES]]
    fixed = {"unary": "observed_linear", "fit_intercept": False, "l2": 1e-4}
    return Model(bf.ChainCRF, {**fixed, **settings}, X, read.train_labels[:N_SENTENCES], learner)


def _graph(**settings: Any) -> Model:
    """Random graphs with two types of variables; edges of two types with features, and factors of three variables."""
    rng = np.random.default_rng(17)
    X, y = [], []
    for _ in range(12):
        n = int(rng.integers(20, 40))
        edges = [tuple(map(int, rng.choice(n, 2, replace=False))) for _ in range(2 * n)]
        triples = [tuple(map(int, rng.choice(n, 3, replace=False))) for _ in range(n // 4)]
        graph = bf.Graph([3] * n, [*edges, *triples])
        types = np.concatenate([rng.integers(0, 2, len(edges)), np.full(len(triples), 2)])
        X.append(bf.Sample(graph, rng.normal(size=(n, 4)), rng.normal(size=(graph.n_factors, 2)),
                           node_types=rng.integers(0, 2, n), factor_types=types))  # fmt: skip
        y.append(rng.integers(0, 3, n))
    return Model(bf.GraphCRF, {"l2": 1e-3, **settings}, X, y)


def measure(model: Model, dtype: str) -> Record:
    """Return values and gradients at the stored weights, and the end of a short fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        problem = problem_of(model.estimator(dtype=dtype, **model.settings), model.X, model.y)
        record = {"n_weights": int(problem.n_weights), "points": [_point(problem, k) for k in range(N_VECTORS)]}
        if model.learner is not None:
            crf = model.estimator(dtype=dtype, learner=model.learner, **model.settings).fit(model.X, model.y)
            record["fit"] = {
                "objective": float(crf.trace_[-1]["objective"]),
                "iterations": len(crf.trace_),
                "sha256": _hash(crf.weights_),
            }
    return record


def stored_weights(n_weights: int, number: int) -> np.ndarray:
    """Return one of the weight vectors: zero, then larger and larger ones."""
    return np.random.default_rng(number).normal(size=n_weights) * (0.0, 0.05, 0.2, 0.5, 1.0)[number]


def _point(problem: Any, number: int) -> Record:
    found = problem.value_and_gradient(stored_weights(problem.n_weights, number))
    gradient = np.asarray(found.gradient, dtype=np.float64)
    chosen = np.unique(np.linspace(0, len(gradient) - 1, N_ENTRIES).astype(int))
    return {
        "value": float(found.value),
        "norm": float(np.linalg.norm(gradient)),
        "largest": float(np.abs(gradient).max()),
        "sha256": _hash(gradient),
        "entries": gradient[chosen].tolist(),
    }


def _hash(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, dtype=np.float64).tobytes()).hexdigest()


def differences(old: Record, new: Record) -> Record:
    """Return the largest relative differences of two records, and whether all bytes are equal."""
    if old["n_weights"] != new["n_weights"]:
        return {"weights": f"{old['n_weights']} before, {new['n_weights']} now"}
    pairs = list(zip(old["points"], new["points"], strict=True))
    entries = [np.abs(np.subtract(a["entries"], b["entries"])).max() / (a["largest"] or 1.0) for a, b in pairs]
    out: Record = {
        "value": max(_apart(a["value"], b["value"]) for a, b in pairs),
        "gradient": float(max([*entries, *(_apart(a["norm"], b["norm"]) for a, b in pairs)])),
    }
    same = all(a["value"] == b["value"] and a["sha256"] == b["sha256"] for a, b in pairs)
    if "fit" in old:
        out["objective"] = _apart(old["fit"]["objective"], new["fit"]["objective"])
        same = same and old["fit"]["sha256"] == new["fit"]["sha256"]
    return {**out, "same_bytes": same}


def _apart(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), sys.float_info.min)


def within_limits(found: Record, dtype: str) -> bool:
    """Whether differences are as small as they have to be."""
    limit = LIMITS[dtype]
    return "weights" not in found and (
        found["value"] <= limit and found["gradient"] <= limit and found.get("objective", 0.0) <= FIT_LIMIT
    )


def main(arguments: list[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, help="Folder that holds conll2000.")
    parser.add_argument("--only", default="", help="Models whose name begins so.")
    given = parser.parse_args(arguments)
    print(f"backfield from {Path(bf.__file__).parent}")
    chosen = [(name, model) for name, model in models(given.data) if name.startswith(given.only)]
    found = {f"{name}, {dtype}": measure(model(), dtype) for name, model in chosen for dtype in DTYPES}
    if given.what == "compare":
        return 0 if agree(json.loads(given.file.read_text()), found) else 1
    write(given.file, found)
    return 0


def agree(old: dict[str, Record], new: dict[str, Record]) -> bool:
    """Print the differences of all models of ``new``; return whether they are as small as they have to be."""
    good = True
    for key, record in new.items():
        found = differences(old[key], record)
        fine = within_limits(found, key.rpartition(", ")[2])
        print(f"{key}: {'good' if fine else 'TOO FAR'} {json.dumps(found)}")
        good = good and fine
    return good


def write(path: Path, found: dict[str, Record]) -> None:
    """Write records, a line each."""
    lines = [f"{json.dumps(key)}: {json.dumps(record)}" for key, record in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
