"""``pycrfsuite`` of python-crfsuite: ``import backfield.compat.pycrfsuite as pycrfsuite``.

Models are files of CRFsuite, which both packages read. The algorithms are ``lbfgs`` and ``ap``, with all their parameters
and CRFsuite's defaults; others are refused.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import write_bytes
from backfield.compat._crfsuite_params import (
    DEFAULTS,
    checked_algorithm,
    checked_parameter,
    estimator,
    help_text,
    stopping,
)
from backfield.constraints import checked, instance, path, several, shown, whole
from backfield.data.formats.crfsuite import CrfsuiteModel, read_crfsuite
from backfield.errors import InputError
from backfield.estimators import ChainCRF
from backfield.estimators.crfsuite_model import from_crfsuite, to_crfsuite, write_crfsuite
from backfield.features.named import named_features

POSITIONS = several("a list of positions, each with its features")
LABELS = several("a list of labels")


class ItemSequence:
    """The features of a sequence with their full names."""

    def __init__(self, pyseq: Iterable[Any]) -> None:
        self._items = [dict(_summed(position)) for position in checked("a sequence", pyseq, POSITIONS)]

    def items(self) -> list[dict[str, float]]:
        """Return a dict {name: value} for each position."""
        return self._items

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<ItemSequence of size {len(self)}>"


def _summed(position: Any) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value in named_features(position, ":"):
        out[name] = out.get(name, 0.0) + float(value)
    return out


def as_sequence(xseq: Any) -> list[Any]:
    """Return the positions of a sequence in any format."""
    return xseq.items() if isinstance(xseq, ItemSequence) else list(checked("a sequence", xseq, POSITIONS))


class TrainingLog:
    """The iterations of a training: dicts with ``num``, ``loss`` (CRFsuite's objective), ``error_norm`` and ``time``."""

    def __init__(self) -> None:
        self.iterations: list[dict[str, Any]] = []
        self.last_iteration: dict[str, Any] | None = None
        self._start = time.perf_counter()

    def add(self, row: dict[str, Any], n_positions: int) -> None:
        """Add a row of the trace of an estimator, whose objective is that of one position."""
        now = time.perf_counter()
        found = {"num": row["iteration"], "loss": row["objective"] * n_positions, "time": now - self._start, "scores": {}}
        self.last_iteration = found | {"error_norm": row["gradient_norm"] * n_positions}
        self.iterations.append(self.last_iteration)
        self._start = now


class Trainer:
    """Learns a model from sequences that are appended one by one.

    Parameters
    ----------
    algorithm : 'lbfgs' or 'ap', optional
    params : dict, optional
        As :meth:`set_params`.
    verbose : bool
        Show progress.
    """

    def __init__(self, algorithm: str | None = None, params: dict[str, Any] | None = None, verbose: bool = True) -> None:
        self.verbose = verbose
        self._params: dict[str, Any] = {}
        self._algorithm = "lbfgs"
        self._data: list[tuple[list[Any], list[str], int]] = []
        self.logparser = TrainingLog()
        if algorithm is not None:
            self.select(algorithm)
        self.set_params({} if params is None else params)

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose the algorithm."""
        if type != "crf1d":
            raise InputError(f"there is no model {type!r}; CRFsuite has 'crf1d'.")
        self._algorithm, self._params = checked_algorithm(algorithm), {}

    def append(self, xseq: Any, yseq: Iterable[str], group: int = 0) -> None:
        """Add a sequence and its labels."""
        x, y = as_sequence(xseq), [str(label) for label in checked("yseq", yseq, LABELS)]
        if len(x) != len(y):
            raise InputError(f"the sequence has {len(x)} positions and {len(y)} labels.")
        if x:
            self._data.append((x, y, group))

    def clear(self) -> None:
        """Forget the sequences."""
        self._data = []

    def params(self) -> list[str]:
        """Return the names of the parameters."""
        return list(DEFAULTS[self._algorithm])

    def help(self, name: str) -> str:
        """Return what a parameter means."""
        return help_text(self._algorithm, name)

    def set(self, name: str, value: Any) -> None:
        """Set a parameter."""
        self._params[name] = checked_parameter(self._algorithm, name, value)

    def get(self, name: str) -> Any:
        """Return the value of a parameter."""
        params = self.get_params()
        if checked("the name of a parameter", name, instance("text", str)) not in params:
            raise InputError(f"there is no parameter {name!r} of {self._algorithm}; there are {', '.join(params)}.")
        return params[name]

    def set_params(self, params: dict[str, Any]) -> None:
        """Set some parameters."""
        for name, value in checked("params", params, instance("a dict", dict)).items():
            self.set(name, value)

    def get_params(self) -> dict[str, Any]:
        """Return all parameters."""
        return DEFAULTS[self._algorithm] | self._params

    def train(self, model: str, holdout: int = -1) -> None:
        """Learn from all sequences but those of the group ``holdout``, and write the file ``model``."""
        crf = self.fit(holdout)
        if model:
            write_bytes(Path(model), write_crfsuite(crf))

    def fit(self, holdout: int = -1) -> ChainCRF:
        """Return the estimator that :meth:`train` writes."""
        chosen = [(x, y) for x, y, group in self._data if group != holdout]
        if not chosen:
            raise InputError("there are no sequences to learn from; call append first.")
        X, y = map(list, zip(*chosen, strict=True))
        n_positions = sum(map(len, y))
        crf, self.logparser = estimator(self._algorithm, self._params, n_positions), TrainingLog()

        def note(iteration: int, w: Any, row: dict[str, Any]) -> None:
            if iteration > 0:
                self.logparser.add(row, n_positions)

        callbacks = [note, *stopping(self._algorithm, self._params)]
        return crf.set_params(verbose=int(self.verbose)).fit(X, y, callbacks=callbacks)


@dataclass(frozen=True)
class Info:
    """What a model holds: ``{(attribute, label): weight}``, ``{(earlier, later): weight}``, numbers of the names."""

    header: dict[str, str]
    labels: dict[str, str]
    attributes: dict[str, str]
    state_features: dict[tuple[str, str], float]
    transitions: dict[tuple[str, str], float]


def model_info(model: CrfsuiteModel, size: int) -> Info:
    """Return what a model holds."""
    owners = np.repeat(np.arange(len(model.attributes)), np.diff(model.ptr)).tolist()
    triples = zip(owners, model.targets.tolist(), model.weights.tolist(), strict=True)
    states = {(model.attributes[a], model.labels[label]): weight for a, label, weight in triples if weight != 0}
    pairs = np.argwhere(model.transitions).tolist()
    edges = {(model.labels[x], model.labels[y]): float(model.transitions[x, y]) for x, y in pairs}
    header = {"size": str(size), "num_labels": str(len(model.labels)), "num_attrs": str(len(model.attributes))}
    return Info(header, _numbered(model.labels), _numbered(model.attributes), states, edges)


def _numbered(names: list[str]) -> dict[str, str]:
    return {name: str(number) for number, name in enumerate(names)}


class Tagger:
    """Tags sequences with a model of CRFsuite."""

    def __init__(self) -> None:
        self._crf: ChainCRF | None = None
        self._sequence: list[Any] | None = None
        self._marginals: np.ndarray | None = None

    def open(self, name: str) -> contextlib.closing[Tagger]:
        """Open a file."""
        try:
            return self.open_inmemory(Path(checked("name", name, path)).read_bytes())
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror}.") from error
        except InputError as error:
            raise InputError(f"{name}: {error}.") from error

    def open_inmemory(self, value: bytes) -> contextlib.closing[Tagger]:
        """Open the content of a file."""
        self._crf = from_crfsuite(read_crfsuite(checked("value", value, instance("the bytes of a model", bytes))))
        return contextlib.closing(self)

    def close(self) -> None:
        """Drop the model."""
        self.__init__()  # type: ignore[misc]

    def _model(self) -> ChainCRF:
        if self._crf is None:
            raise InputError("no model is open; call open first.")
        return self._crf

    def _current(self) -> list[Any]:
        if self._sequence is None:
            raise InputError("there is no sequence; call set or tag first.")
        return self._sequence

    def labels(self) -> list[str]:
        """Return the labels."""
        labels: list[str] = self._model().classes_.tolist()
        return labels

    def set(self, xseq: Any) -> None:
        """Set the sequence for :meth:`tag`, :meth:`marginal` and :meth:`probability`."""
        self._sequence, self._marginals = as_sequence(xseq), None

    def tag(self, xseq: Any = None) -> list[str]:
        """Return the most probable labels of a sequence."""
        if xseq is not None:
            self.set(xseq)
        x = self._current()
        return self._model().predict([x])[0].tolist() if x else []

    def tag_many(self, sequences: list[Any]) -> list[list[str]]:
        """Return the most probable labels of many sequences, faster than one by one."""
        X = [as_sequence(each) for each in sequences]
        found = iter(self._model().predict([x for x in X if x]))
        return [next(found).tolist() if x else [] for x in X]

    def marginals_of_many(self, sequences: list[Any]) -> list[np.ndarray]:
        """Return the probabilities (positions, labels) of many sequences."""
        X, width = [as_sequence(each) for each in sequences], len(self.labels())
        found = iter(self._model().predict_proba([x for x in X if x]))
        return [next(found) if x else np.empty((0, width)) for x in X]

    def marginal(self, y: str, pos: int) -> float:
        """Return the probability of the label ``y`` at a position."""
        crf, x = self._model(), self._current()
        if not 0 <= checked("pos", pos, whole()) < len(x):
            raise InputError(f"there is no position {pos}; the sequence has {len(x)}.")
        if self._marginals is None:
            self._marginals = crf.predict_proba([x])[0]
        return float(self._marginals[pos, self._position(y)])

    def _position(self, label: str) -> int:
        labels = self.labels()
        if not isinstance(label, str) or label not in labels:
            raise InputError(f"there is no label {shown(label)}; there are {', '.join(labels)}.")
        return labels.index(label)

    def probability(self, yseq: Iterable[str]) -> float:
        """Return the probability of labels together."""
        crf, x = self._model(), self._current()
        y = [self._position(label) for label in checked("yseq", yseq, LABELS)]
        if len(y) != len(x):
            raise InputError(f"the sequence has {len(x)} positions and {len(y)} labels.")
        if not x:
            return 1.0
        return float(np.exp(crf.potentials(x).score(np.array(y)) - crf.marginals(x).log_partition))

    def dump(self, filename: str | None = None) -> None:
        """Write labels, attributes and weights as text, to the standard output without a file."""
        info = self.info()
        lines = ["TRANSITIONS = {"]
        lines += [f"  (1) {a} --> {b}: {weight:f}" for (a, b), weight in info.transitions.items()]
        lines += ["}", "", "STATE_FEATURES = {"]
        lines += [f"  (0) {name} --> {label}: {weight:f}" for (name, label), weight in info.state_features.items()]
        text = "\n".join([*lines, "}", ""])
        if filename is None:
            sys.stdout.write(text)
        else:
            write_bytes(Path(filename), text.encode("utf-8", "surrogateescape"))

    def info(self) -> Info:
        """Return labels, attributes and weights."""
        crf = self._model()
        return model_info(to_crfsuite(crf), len(write_crfsuite(crf)))
