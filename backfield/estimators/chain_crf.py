"""ChainCRF: labels of the positions of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from backfield.constraints import Table, check, checked, whole
from backfield.estimators._sequence_answers import SequenceAnswers, Span
from backfield.estimators.crf import CRF

#: The likelihood by exact inference.
_EXACT = {"inference": "chain", "loss": "surrogate_likelihood", "gradient": None, "start": "zero", "dtype": "float64"}


#: What may be said to ``sample``.
SAMPLE: Table = {"n": (whole(1, 10**8),), "random_state": (whole(0),)}


class ChainCRF(CRF, structure="chain", defaults=_EXACT):
    """A linear-chain conditional random field; parameters as in :class:`GridCRF`, but exact inference by default.

    X is a list of (T, F) arrays, CSR matrices, or lists of {feature: value} dicts or lists of names; y a list of sequences
    of ints or strings (-1 or "" = hidden), or of sets of them: ``[{"B-PER", "O"}, "B-LOC", None]`` knows the first label in
    part, the second exactly, and the third not at all; the likelihood sums over what is possible. A value of a dict is a
    number, or a string: {"word": "the"} has the feature "word=the" (``separator``); or a list or dict of more of them, whose
    names follow after the separator.

    ``constraints`` are transitions that cannot be, in learning and in prediction: "BIO", "BIOES", or a list of forbidden
    pairs of labels (None: before the first position, after the last), {"forbidden": pairs} or {"allowed": pairs}. Predicted
    sequences keep them: where the most probable labels of the positions do not, ``max_marginal`` takes the allowed sequence
    with the largest product of marginals.

    ``order`` is the number of earlier labels that a label sees: with 2 there is also a weight for every three labels in a
    row, and inference costs L^3 per position. Named features that occur fewer than ``min_count`` times have no weight.
    """

    if TYPE_CHECKING:  # the parameters of the structure, beside those of every CRF

        def __init__(
            self,
            inference: Any = "chain",
            *,
            separator: str = "=",
            constraints: Any = None,
            order: int = 1,
            min_count: int = 1,
            **params: Any,
        ) -> None: ...

    def predict_best(self, X: Any, k: int = 5) -> list[list[tuple[np.ndarray, float]]]:
        """Return the k best labelings of each sequence (all, where there are fewer) with their probabilities."""
        checked("k", k, whole(1, 10**6))
        return list(self._stream(self._answers(k).best, X))

    def predict_spans(self, X: Any) -> list[list[Span]]:
        """Return the spans of the best labeling of each sequence: (start, stop, label, probability).

        Labels are B-X, I-X, E-X, S-X (BIO or BIOES); others are outside of spans. The probability is that of exactly this
        span, with these labels: it neither starts earlier nor goes on.
        """
        return list(self._stream(self._answers().spans, X))

    def sample(self, X: Any, n: int = 1, random_state: int = 0) -> list[np.ndarray]:
        """Return (n, T) labels of each sequence, drawn from the model."""
        check({"n": n, "random_state": random_state}, SAMPLE)
        return list(self._stream(self._answers(n, random_state).samples, X))

    def entropy(self, X: Any) -> np.ndarray:
        """Return the entropy of the labels of each sequence together, in nats."""
        return np.array(list(self._stream(self._answers().entropy, X)))

    def _answers(self, k: int = 1, seed: int = 0) -> SequenceAnswers:
        return SequenceAnswers(self._predictor(), int(k), int(seed))
