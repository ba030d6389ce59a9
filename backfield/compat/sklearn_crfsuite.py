"""``sklearn_crfsuite.CRF``: ``from backfield.compat.sklearn_crfsuite import CRF``.

The parameters of ``lbfgs`` and ``ap`` mean what they mean there, others are refused: see
:mod:`backfield.compat.pycrfsuite`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from backfield.atomic import write_bytes
from backfield.compat.pycrfsuite import LABELS, Info, Tagger, Trainer, TrainingLog
from backfield.constraints import checked, several
from backfield.errors import InputError
from backfield.estimators.crfsuite_model import write_crfsuite
from backfield.scikit_learn import BaseEstimator

#: Name here -> name in CRFsuite.
_NAMES = {
    "min_freq": "feature.minfreq",
    "all_possible_states": "feature.possible_states",
    "all_possible_transitions": "feature.possible_transitions",
    "calibration_eta": "calibration.eta",
    "calibration_rate": "calibration.rate",
    "calibration_samples": "calibration.samples",
    "calibration_candidates": "calibration.candidates",
    "calibration_max_trials": "calibration.max_trials",
    "pa_type": "type",
}
_OTHERS = ("c", "error_sensitive", "averaging", "variance", "gamma")
_PARAMS = ("c1", "c2", "max_iterations", "num_memories", "epsilon", "period", "delta", "linesearch", "max_linesearch")


SEQUENCES = several("a list of sequences")


def _pairs(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """Return sequences with their labels."""
    sequences, labels = list(checked("X", X, SEQUENCES)), list(checked("y", y, SEQUENCES))
    if len(sequences) != len(labels):
        raise InputError(f"received {len(sequences)} sequences but {len(labels)} labelings.")
    return list(zip(sequences, labels, strict=True))


class CRF(BaseEstimator):
    """A tagger with the parameters, methods and attributes of ``sklearn_crfsuite.CRF``."""

    def __init__(
        self,
        algorithm: str | None = None,
        min_freq: float | None = None,
        all_possible_states: bool | None = None,
        all_possible_transitions: bool | None = None,
        c1: float | None = None,
        c2: float | None = None,
        max_iterations: int | None = None,
        num_memories: int | None = None,
        epsilon: float | None = None,
        period: int | None = None,
        delta: float | None = None,
        linesearch: str | None = None,
        max_linesearch: int | None = None,
        calibration_eta: float | None = None,
        calibration_rate: float | None = None,
        calibration_samples: float | None = None,
        calibration_candidates: int | None = None,
        calibration_max_trials: int | None = None,
        pa_type: int | None = None,
        c: float | None = None,
        error_sensitive: bool | None = None,
        averaging: bool | None = None,
        variance: float | None = None,
        gamma: float | None = None,
        verbose: bool = False,
        model_filename: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.verbose = verbose
        self.model_filename = model_filename

    def fit(self, X: Any, y: Any, X_dev: Any = None, y_dev: Any = None) -> Self:
        """Learn from sequences and their labels; ``X_dev`` is accepted and not used."""
        if (X_dev is None) != (y_dev is None):
            raise InputError("X_dev and y_dev must be given together.")
        given = {name: getattr(self, name) for name in (*_NAMES, *_PARAMS, *_OTHERS)}
        params = {_NAMES.get(name, name): value for name, value in given.items() if value is not None}
        trainer = Trainer(self.algorithm, params, verbose=self.verbose)
        for x_one, y_one in _pairs(X, y):
            trainer.append(x_one, y_one)
        self._model = write_crfsuite(trainer.fit())
        self.training_log_ = trainer.logparser
        self._tagger = None
        if self.model_filename is not None:
            write_bytes(Path(self.model_filename), self._model)
        return self

    _model: bytes | None = None
    #: The iterations of the last fit.
    training_log_: TrainingLog | None = None
    _tagger: Tagger | None = None

    @property
    def tagger_(self) -> Tagger | None:
        """The tagger with the learned model, or with that of ``model_filename``."""
        if self._tagger is None:
            if self._model is None and self.model_filename is not None and Path(self.model_filename).exists():
                self._model = Path(self.model_filename).read_bytes()
            if self._model is not None:
                self._tagger = Tagger()
                self._tagger.open_inmemory(self._model)
        return self._tagger

    def _fitted(self) -> Tagger:
        tagger = self.tagger_
        if tagger is None:
            raise InputError("this CRF is not fitted yet; call fit first, or name a model_filename that exists.")
        return tagger

    def predict(self, X: Any) -> list[list[str]]:
        """Return the labels of each sequence."""
        return self._fitted().tag_many(list(checked("X", X, SEQUENCES)))

    def predict_single(self, xseq: Any) -> list[str]:
        """Return the labels of a sequence."""
        return self._fitted().tag(xseq)

    def predict_marginals(self, X: Any) -> list[list[dict[str, float]]]:
        """Return {label: probability} of each position of each sequence."""
        tagger = self._fitted()
        labels = tagger.labels()
        found = tagger.marginals_of_many(list(checked("X", X, SEQUENCES)))
        return [[dict(zip(labels, row, strict=True)) for row in p.tolist()] for p in found]

    def predict_marginals_single(self, xseq: Any) -> list[dict[str, float]]:
        """Return {label: probability} of each position."""
        return self.predict_marginals([xseq])[0]

    def score(self, X: Any, y: Any) -> float:
        """Return the share of right labels."""
        right: list[bool] = []
        for x, labels in _pairs(X, y):
            found, truth = self.predict_single(x), [str(label) for label in checked("labels", labels, LABELS)]
            if len(found) != len(truth):
                raise InputError(f"a sequence has {len(found)} positions and {len(truth)} labels.")
            right += [a == b for a, b in zip(found, truth, strict=True)]
        if not right:
            raise InputError("there is nothing to score: the sequences have no positions.")
        return float(np.mean(right))

    def _info(self) -> Info | None:
        return None if self.tagger_ is None else self.tagger_.info()

    @property
    def classes_(self) -> list[str] | None:
        """The labels."""
        return None if self.tagger_ is None else self.tagger_.labels()

    @property
    def size_(self) -> int | None:
        """Size of the model in bytes."""
        return None if self.tagger_ is None else len(self._model or b"")

    @property
    def attributes_(self) -> list[str] | None:
        """The attributes."""
        info = self._info()
        return None if info is None else list(info.attributes)

    @property
    def num_attributes_(self) -> int | None:
        """Number of attributes with weights."""
        info = self._info()
        return None if info is None else len(info.attributes)

    @property
    def state_features_(self) -> dict[tuple[str, str], float] | None:
        """Return {(attribute, label): weight}."""
        info = self._info()
        return None if info is None else info.state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float] | None:
        """Return {(earlier, later): weight}."""
        info = self._info()
        return None if info is None else info.transitions
