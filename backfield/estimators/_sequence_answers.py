"""Answers about whole sequences, for one entry of X at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backfield.estimators._predicting import Predictor
from backfield.inference.exact.sequences import Sequence
from backfield.structures.constraints import tag_and_name


class Span(NamedTuple):
    """Positions ``start`` .. ``stop`` - 1 with their name, and the probability that exactly this span is there."""

    start: int
    stop: int
    label: str
    probability: float


@dataclass(frozen=True, eq=False)
class SequenceAnswers:
    """A model of chains that answers for one entry of X at a time."""

    predictor: Predictor
    k: int = 1
    seed: int = 0

    def best(self, x: Any, number: int) -> list[tuple[np.ndarray, float]]:
        """Return the k best labelings and their probabilities."""
        labels, logs = self._sequence(x, number).best(self.k)
        return [(self._classes[each], float(p)) for each, p in zip(labels, np.exp(logs), strict=True)]

    def spans(self, x: Any, number: int) -> list[Span]:
        """Return the spans of the best labeling and their probabilities."""
        chain = self._sequence(x, number)
        labels = chain.best(1)[0][0]
        tags = [tag_and_name(str(name)) for name in self._classes.tolist()]
        return [self._span(chain, labels, start, stop, tags) for start, stop in _found(labels, tags)]

    def samples(self, x: Any, number: int) -> np.ndarray:
        """Return k labelings, drawn from the model."""
        chain = self._sequence(x, number)
        uniform = np.random.default_rng([self.seed, number]).random((self.k, len(chain.unary)))
        return np.asarray(self._classes[chain.sample(uniform)])

    def entropy(self, x: Any, number: int) -> float:
        """Return the entropy of all labels together."""
        return self._sequence(x, number).entropy()

    @property
    def _classes(self) -> np.ndarray:
        return self.predictor.assembler.learned.classes.values

    def _sequence(self, x: Any, number: int) -> Sequence:
        return Sequence.of(self.predictor.theta(self.predictor.sample(x, number), number))

    @staticmethod
    def _span(chain: Sequence, labels: np.ndarray, start: int, stop: int, tags: list[tuple[str, str]]) -> Span:
        (first, name), last = tags[labels[start]], tags[labels[stop - 1]][0]
        opened = np.array([tag in "BI" and other == name for tag, other in tags])
        going_on = np.array([tag in "IE" and other == name for tag, other in tags])
        before = ~opened if first in "IE" else None
        after = ~going_on if last in "BI" else None
        return Span(start, stop, name, float(np.exp(chain.segment(start, labels[start:stop], before, after))))


def _found(labels: np.ndarray, tags: list[tuple[str, str]]) -> list[tuple[int, int]]:
    """Return (start, stop) of the spans: a label goes on with the one before where that is open and has its name."""
    out: list[tuple[int, int]] = []
    before = ("O", "")
    for t, label in enumerate(labels.tolist()):
        tag, name = tags[label]
        if tag != "O":
            if tag in "IE" and before[0] in "BI" and before[1] == name:
                out[-1] = (out[-1][0], t + 1)
            else:
                out.append((t, t + 1))
        before = (tag, name)
    return out
