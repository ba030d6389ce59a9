"""Odd arguments from Python, and odd command lines."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import backfield as bf
from backfield.cli.app import COMMANDS
from backfield.registry import lookup, names, rooms
from fuzz.models import Case, command, fitted, images, sentences
from fuzz.mutations import ODD_VALUES
from fuzz.runner import WrongAnswer

#: More of them for Python, where an argument may be any object.
ODD: list[Any] = [
    *ODD_VALUES, b"x", np.array([1, 2]), 2.5, object(), len, "linear", "exact", 1j, np.ma.masked, np.int8(3),
    np.array(["a"]), np.zeros((0, 2)), np.full((2, 2), np.nan), np.array([1, None]), (k for k in range(3)), range(5), {1, 2},
    np.ma.array([1, 2], mask=[0, 1]), sp.eye(2, format="csr"), [[1], [1, 2]], "lbfgs(max_iter=", "exact()", type, "balanced",
]  # fmt: skip
#: Arguments of ``fit`` beside the data.
FIT = ["sample_weight", "checkpoint", "checkpoint_seconds", "checkpoint_iterations", "callbacks", "validation", "n_chunks",
       "resume", "tile", "cluster"]  # fmt: skip


@dataclass
class Arguments:
    """Odd values for parameters of estimators, of parts and of functions, and for data, from Python."""

    name: str = "arguments"
    models: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        fitted()
        X, y = images()
        words, tags = sentences()
        rng = np.random.default_rng(0)
        table = rng.normal(size=(20, 3))
        quick = {"learner": "lbfgs(max_iter=2)"}
        self.models = {
            "grid": (bf.GridCRF(**quick), X, y),
            "volume": (bf.VolumeCRF(**quick), [np.stack([x, x]) for x in X], [np.stack([m, m]) for m in y]),
            "dense": (bf.DenseCRF(**quick), X, y),
            "chain": (bf.ChainCRF(**quick), words, tags),
            "graph": (bf.GraphCRF(**quick), [bf.Sample(bf.Graph.chain(3), np.eye(3))] * 2, [[0, 1, 1], [1, 0, 0]]),
            "sets": (bf.MultiLabelCRF(**quick), table, (table > 0).astype(int)),
            "network": (bf.MarkovNetwork(max_seconds=1.0), {"a": list("xyxy") * 5, "b": list("xxyy") * 5}, None),
            "scaled": (bf.Scaled(), X, None),
        }
        for model, examples, labels in self.models.values():
            model.fit(examples) if labels is None else model.fit(examples, labels)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        value = ODD[int(rng.integers(len(ODD)))]
        kind = rng.random()
        if kind < 0.45:
            return self._estimator(rng, value)
        return self._part(rng, value) if kind < 0.65 else self._function(rng, value)

    def _estimator(self, rng: np.random.Generator, value: Any) -> Case:
        model, X, y = self.models[str(rng.choice(list(self.models)))]
        given = {"X": X} if y is None else {"X": X, "y": y}
        target = rng.random()
        if target < 0.5:
            parameter = str(rng.choice(sorted(model.get_params(deep=False))))
            return lambda: _use(model.set_params(**{parameter: value}), given)
        known = [key for key in FIT if key in inspect.signature(model.fit).parameters]
        if target < 0.7 and known:
            return lambda: _use(model, given | {str(rng.choice(known)): value})
        broken = [value, [value], [value] * 3, _first(X), _turned(X)][int(rng.integers(5))]
        which = str(rng.choice(list(given)))
        if rng.random() < 0.3:
            return lambda: _predict(model, broken)
        return lambda: model.fit(*(given | {which: broken}).values())

    def _part(self, rng: np.random.Generator, value: Any) -> Case:
        room = str(rng.choice(rooms()))
        part = lookup(room, str(rng.choice(names(room))))
        fields = [each.name for each in dataclasses.fields(part)]  # type: ignore[arg-type]
        if not fields:
            return lambda: bf.registry.get(room, value)
        given = {str(rng.choice(fields)): value}
        return lambda: part(**given)

    def _function(self, rng: np.random.Generator, value: Any) -> Case:
        graph = bf.Graph.grid(3, 4, labels=2)
        theta = bf.Potentials(graph, np.zeros((12, 2)), np.zeros((17, 2, 2)))
        through = {"loss": "univariate_logistic", "inference": "exact"}
        network = bf.Model({"a": ["x", "y"], "b": ["x", "y"]}, conditionals={"a": [0.5, 0.5], "b": ([("a")], np.eye(2))})
        cases: list[Callable[[], Any]] = [
            lambda: bf.Graph(value, [(0, 1)]),
            lambda: bf.Graph([2, 2], value),
            lambda: bf.Graph.grid(value, 3),
            lambda: bf.Graph.grid(3, 3, labels=value),
            lambda: bf.Graph.grid(3, 3, neighbours=value),
            lambda: bf.Graph.grid(3, 3, offsets=value),
            lambda: bf.Graph.chain(value, 2),
            lambda: bf.Graph.from_edges(value),
            lambda: bf.Graph.from_edges([[0, 1]], labels=value),
            lambda: bf.Potentials(graph, value, np.zeros((17, 2, 2))),
            lambda: bf.Potentials(graph, np.zeros((12, 2)), value),
            lambda: bf.infer(theta, value),
            lambda: bf.infer(value, "exact"),
            lambda: bf.infer(theta, "exact", observed=value),
            lambda: bf.infer(theta, "tree_reweighted", dtype=value),
            lambda: bf.find_map(theta, value),
            lambda: bf.find_map(value),
            lambda: bf.value_and_gradient(theta, value, **through),
            lambda: bf.value_and_gradient(theta, [0] * 12, **through | {"loss": value}),
            lambda: bf.value_and_gradient(theta, [0] * 12, **through, weights=value),
            lambda: bf.value_and_gradient(theta, [0] * 12, **through, gradient=value),
            lambda: bf.Sample(graph, value),
            lambda: bf.Sample(value, np.eye(12)),
            lambda: bf.load(value),
            lambda: bf.open_shards(value),
            lambda: bf.Model.read(value),
            lambda: network.query(value),
            lambda: network.query(["a"], given=value),
            lambda: network.map_query(given=value),
            lambda: bf.Model(value),
            lambda: bf.batch(value),
        ]
        return cases[int(rng.integers(len(cases)))]


def _use(model: Any, given: dict[str, Any]) -> None:
    _predict(model.fit(**given), given["X"])


def _predict(model: Any, X: Any) -> None:
    if isinstance(model, bf.MarkovNetwork):
        model.predict(X, "a")
    elif isinstance(model, bf.Scaled):
        model.transform(X)
    else:
        model.predict(X)


def _first(X: Any) -> Any:
    return dict(list(X.items())[:1]) if isinstance(X, dict) else X[:1]


def _turned(X: Any) -> Any:
    return [x.T for x in X] if isinstance(X, list) and isinstance(X[0], np.ndarray) else [X, X]


#: Words of command lines.
WORDS = ["grid", "chain", "exact", "-1", "0", "nan", "1e999", "", "(", "x(", "..", "/dev/null", "/", ".", "\x00", "2", "0.5",
         "é\n", "auto(seconds=1)", "tree_reweighted(n_iter=1)", "univariate_logistic", "lbfgs(max_iter=1)", "local:0",
         "tcp://x", "1" * 30]  # fmt: skip


@dataclass
class CommandLines:
    """Random command lines: exit code 0, 1 or 2, one line on standard error, inputs as they were."""

    name: str = "command_lines"
    #: label and demo run for long, and warm fills a cache.
    commands: tuple[str, ...] = (
        "fit", "predict", "evaluate", "convert", "infer", "list", "gradcheck", "pack", "compare",
    )  # fmt: skip

    def prepare(self, folder: Path) -> None:
        X, y = images()
        self.data, self.model, self.network = folder / "data.npz", folder / "m.bf", folder / "m.bif"
        np.savez(self.data, images=np.stack(X), masks=np.stack(y))
        self.network.write_text("network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\n"
                                "probability ( a ) { table 0.25, 0.75; }\n")  # fmt: skip
        command("fit", self.data, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", self.model)
        command("gradcheck")  # compiles two hundred kernels, for longer than a case may take
        self.options = {name: _options(function) for name, function in COMMANDS.items()}

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        kept = {name: folder / name for name in ("data.npz", "m.bf", "m.bif")}
        for path, source in zip(kept.values(), (self.data, self.model, self.network), strict=True):
            shutil.copy(source, path)
        name = str(rng.choice(self.commands))
        values = [*WORDS, *map(str, kept.values()), str(folder / "out"), str(folder / "no" / "out")]
        line = [name]
        if rng.random() < 0.7:  # what makes sense first
            line += {"fit": [str(kept["data.npz"]), "-o", str(folder / "new.bf"), "--learner", "lbfgs(max_iter=1)"],
                     "predict": [str(kept["m.bf"]), str(kept["data.npz"]), "-o", str(folder / "out")],
                     "evaluate": [str(kept["m.bf"]), str(kept["data.npz"])],
                     "infer": [str(kept["m.bif"])]}.get(name, [])  # fmt: skip
        for _ in range(int(rng.integers(0, 4))):
            line += [str(rng.choice(self.options[name]))] if rng.random() < 0.6 else []
            line += [str(rng.choice(values))] if rng.random() < 0.8 else []
        before = {path: path.read_bytes() for path in kept.values()}

        def check() -> None:
            command(*line)
            for path in before:
                if path.read_bytes() != before[path] and not _is_output(line, str(path)):
                    raise WrongAnswer(f"{line} changed {path.name}")

        return check


def _is_output(line: list[str], path: str) -> bool:
    """Whether a file is named once, as an output: after an option that names one, or as the second file of convert."""
    places = [k for k, word in enumerate(line) if word == path]
    named = [line[k - 1] in ("-o", "--out", "--checkpoint", "--report") or line[0] == "convert" for k in places]
    return named == [True]


def _options(function: Callable[..., None]) -> list[str]:
    """Return the options of a command."""
    import typer

    app = typer.Typer()
    app.command()(function)
    return [name for parameter in typer.main.get_command(app).params for name in parameter.opts if name.startswith("-")]
