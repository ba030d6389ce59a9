"""How good predictions are: errors, per class, chunks, and whether probabilities mean what they say.

    IoU_c = n_cc / (row_c + column_c - n_cc),   F1_c = 2 n_cc / (row_c + column_c)      n: confusion, truth x prediction
    ECE   = sum_b |B_b| / N  | accuracy(B_b) - confidence(B_b) |                         (Guo et al. 2017, eq. 3)

B_b holds the variables whose largest marginal, the confidence, is in bin b. Hidden variables (-1 or "") count nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError

N_BINS = 15


class Calibration(NamedTuple):
    """Per bin of confidence: lower ends, mean confidence, share of right predictions (nan: empty), share of variables."""

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    share: np.ndarray
    #: Standard error of the accuracy, over examples: their variables are not independent.
    spread: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error."""
        used = self.share > 0
        return float((self.share[used] * np.abs(self.accuracy[used] - self.confidence[used])).sum())


class ChunkScores(NamedTuple):
    """Precision, recall and F1 of chunks, as ``conlleval`` counts them, and the number of true chunks.

    ``counts`` holds for each type how many are right, real and guessed.
    """

    precision: float
    recall: float
    f1: float
    support: int
    counts: dict[str, tuple[int, int, int]] = {}


@dataclass(frozen=True)
class Metrics:
    """Scores of one set of predictions; per-class arrays follow ``classes`` and are nan where they have no meaning."""

    classes: list[Any]
    confusion: np.ndarray
    calibration: Calibration | None = None
    log_loss: float | None = None
    chunks: ChunkScores | None = None
    spans: Calibration | None = None

    @property
    def n_variables(self) -> int:
        """Number of labelled variables."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Share of variables with the right label."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def error(self) -> float:
        """Share of variables with a wrong label."""
        return 1.0 - self.accuracy

    @property
    def support(self) -> np.ndarray:
        """Number of variables of each class."""
        return self.confusion.sum(axis=1)

    @property
    def class_error(self) -> np.ndarray:
        """Share of each class's variables that got another label."""
        return 1.0 - _ratio(np.diag(self.confusion), self.support)

    @property
    def precision(self) -> np.ndarray:
        """Share of the variables given a label that have it."""
        return _ratio(np.diag(self.confusion), self.confusion.sum(axis=0))

    @property
    def recall(self) -> np.ndarray:
        """Share of each class's variables that were found."""
        return _ratio(np.diag(self.confusion), self.support)

    @property
    def iou(self) -> np.ndarray:
        """Intersection over union of each class."""
        both = np.diag(self.confusion)
        return _ratio(both, self.support + self.confusion.sum(axis=0) - both)

    @property
    def f1(self) -> np.ndarray:
        """Harmonic mean of precision and recall of each class."""
        return _ratio(2 * np.diag(self.confusion), self.support + self.confusion.sum(axis=0))

    @property
    def mean_iou(self) -> float:
        """Mean IoU over the classes that occur in truth or prediction."""
        return float(np.nanmean(self.iou))

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that occur in truth or prediction."""
        return float(np.nanmean(self.f1))

    @property
    def ece(self) -> float | None:
        """Expected calibration error."""
        return None if self.calibration is None else self.calibration.error

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values; nan becomes null."""
        columns = ("support", "class_error", "precision", "recall", "f1", "iou")
        table = {column: getattr(self, column) for column in columns}
        per_class = [
            {"class": label} | {column: _finite(values[k]) for column, values in table.items()}
            for k, label in enumerate(self.classes)
        ]
        out: dict[str, Any] = {
            "variables": self.n_variables,
            "accuracy": self.accuracy,
            "error": self.error,
            "mean_iou": self.mean_iou,
            "macro_f1": self.macro_f1,
            "expected_calibration_error": self.ece,
            "log_loss": self.log_loss,
            "per_class": per_class,
            "confusion": self.confusion.tolist(),
        }
        if self.chunks is not None:
            types = {kind: _chunk_scores({kind: counts})._asdict() for kind, counts in self.chunks.counts.items()}
            for scores in types.values():
                del scores["counts"]
            out["chunks"] = self.chunks._asdict() | {"counts": self.chunks.counts, "types": types}
        if self.spans is not None:
            rows = zip(*self.spans, strict=True)
            bins = [dict(zip(self.spans._fields, map(_finite, row), strict=True)) for row in rows]
            out["spans"] = {"expected_calibration_error": self.spans.error, "bins": bins}
        return out


def evaluate(truth: Sequence[Any], predicted: Sequence[Any], classes: Any, probabilities: Any = None) -> Metrics:
    """Score predictions.

    Parameters
    ----------
    truth, predicted
        Labels of each example, of any shape; in the truth -1 (of strings "") = hidden.
    classes
        All labels there are, sorted.
    probabilities : optional
        Of each example, with the classes as last axis.
    """
    tally = Tally(classes)
    if len(truth) != len(predicted):
        raise InputError("truth and prediction must have the same sizes.")
    for k, (real, guess) in enumerate(zip(truth, predicted, strict=True)):
        tally.add(real, guess, None if probabilities is None else probabilities[k])
    return tally.metrics()


class Tally:
    """Scores predictions one example after the other; what it holds does not grow with their number."""

    def __init__(self, classes: Any) -> None:
        self.classes = np.asarray(classes)
        count = len(self.classes)
        self._confusion: np.ndarray = np.zeros((count, count), dtype=np.int64)
        self._bins = np.zeros((3, N_BINS))  # variables, their confidence, how many are right
        self._squares = np.zeros((3, N_BINS))  # over examples, of variables and right ones: n n, n r, r r
        self._log_loss: float | None = None
        self._tagging = _is_tagging(self.classes)
        self._chunks: Counter[tuple[str, int]] = Counter()  # of each type: right, real, guessed

    def add(self, truth: Any, predicted: Any, probabilities: Any = None, weight: float = 1) -> None:
        """Score one example: its labels, the predicted ones, and the probabilities with the classes as last axis.

        Its variables count ``weight`` times; its chunks count once.
        """
        real, guess = _positions(truth, self.classes, "the truth"), _positions(predicted, self.classes, "the prediction")
        if len(real) != len(guess):
            raise InputError("truth and prediction must have the same sizes.")
        known = real >= 0
        y, x = real[known], guess[known]
        self._confusion = self._confusion + weight * confusion(y, x, len(self.classes))
        if probabilities is not None:
            p = np.asarray(probabilities)
            if p.shape != (*np.shape(truth), len(self.classes)):
                needed = (*np.shape(truth), len(self.classes))
                raise InputError(f"probabilities must have shape {needed}, one per label and class, received {p.shape}.")
            p = p.reshape(-1, len(self.classes))[known]
            bins = weight * _bins(p, y)
            self._bins += bins
            self._squares += _squares(bins[0], bins[2])
            self._log_loss = (self._log_loss or 0.0) + weight * _log_losses(p, y).sum()
        if self._tagging:
            self._chunks += _count_chunks(np.asarray(truth).tolist(), np.asarray(predicted).tolist())

    def metrics(self) -> Metrics:
        """Return the scores of all examples together."""
        total = self._confusion.sum()
        if total == 0:
            raise InputError("there is nothing to score: all labels are hidden.")
        found = None if self._log_loss is None else _calibration(self._bins, self._squares)
        loss = None if self._log_loss is None else float(self._log_loss / total)
        chunks = _chunk_scores(_by_type(self._chunks)) if self._tagging else None
        return Metrics(self.classes.tolist(), self._confusion, found, loss, chunks)


def confusion(truth: np.ndarray, predicted: np.ndarray, n_labels: int) -> np.ndarray:
    """Return how often label i (row) was taken for label j (column)."""
    return np.bincount(truth * n_labels + predicted, minlength=n_labels**2).reshape(n_labels, n_labels)


def calibration(probabilities: np.ndarray, truth: np.ndarray, n_bins: int = N_BINS) -> Calibration:
    """Return confidence and accuracy in ``n_bins`` bins of equal width, from (N, L) probabilities and (N,) labels."""
    bins = _bins(probabilities, truth, n_bins)
    return _calibration(bins, np.stack([bins[0], bins[2], bins[2]]))  # each variable is an example


def _bins(probabilities: np.ndarray, truth: np.ndarray, n_bins: int = N_BINS) -> np.ndarray:
    """Return per bin the number of variables, the sum of their confidence and how many are right."""
    confidence = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == truth
    bins = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    return np.stack([np.bincount(bins, weights, n_bins) for weights in (None, confidence, right)]).astype(np.float64)


def _squares(n: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.stack([n * n, n * right, right * right])


def _calibration(bins: np.ndarray, squares: np.ndarray) -> Calibration:
    count, confidence, right = bins
    edges = np.arange(len(count)) / len(count)
    accuracy = _ratio(right, count)
    # Variance of a ratio of sums over examples, sum (r_k - a n_k)^2 / (sum n_k)^2 (Cochran 1977, 2.11).
    variance = squares[2] - 2 * accuracy * squares[1] + accuracy**2 * squares[0]
    spread = _ratio(np.sqrt(np.maximum(variance, 0.0)), count)
    return Calibration(edges, _ratio(confidence, count), accuracy, count / max(1.0, count.sum()), spread)


def log_loss(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean of -log p(true label), with p kept above 1e-12."""
    return float(_log_losses(probabilities, truth).mean())


def _log_losses(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    p = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    return -np.log(np.maximum(p, 1e-12))


def chunk_scores(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> ChunkScores:
    """Return precision, recall and F1 of the chunks of BIO tags (also with E and S); a chunk is right if it is all right."""
    counts: Counter[tuple[str, int]] = Counter()
    for tags, guesses in zip(truth, predicted, strict=True):
        counts += _count_chunks(tags, guesses)
    return _chunk_scores(_by_type(counts))


def _count_chunks(truth: Sequence[str], predicted: Sequence[str]) -> Counter[tuple[str, int]]:
    """Return how many chunks of each type are right (0), real (1) and guessed (2)."""
    a, b = chunks_of(truth), chunks_of(predicted)
    return Counter((kind, what) for what, chunks in enumerate((a & b, a, b)) for kind, _, _ in chunks)


def _by_type(counts: Counter[tuple[str, int]]) -> dict[str, tuple[int, int, int]]:
    return {kind: (counts[kind, 0], counts[kind, 1], counts[kind, 2]) for kind in sorted({kind for kind, _ in counts})}


def _chunk_scores(counts: dict[str, tuple[int, int, int]]) -> ChunkScores:
    right, real, guessed = (sum(each[what] for each in counts.values()) for what in range(3))
    precision, recall = right / guessed if guessed else 0.0, right / real if real else 0.0
    return ChunkScores(precision, recall, 2 * right / (real + guessed) if real + guessed else 0.0, real, counts)


def chunks_of(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the chunks (type, first, last) of a sequence of tags, by the rules of ``conlleval``."""
    found, first, previous, inside = set(), 0, "O", ""
    for at, tag in enumerate([*tags, "O"]):
        mark, _, kind = (tag or "O").partition("-")
        starts = mark in ("B", "S") or (mark in ("I", "E") and (previous in ("O", "E", "S") or kind != inside))
        if previous != "O" and (starts or mark == "O"):
            found.add((inside, first, at - 1))
        if starts:
            first = at
        previous, inside = mark, kind
    return found


def _is_tagging(classes: np.ndarray) -> bool:
    """Whether labels are tags such as B-NP, I-NP and O."""
    if classes.dtype.kind != "U":
        return False
    marks = {label.partition("-")[0] if "-" in label else label.replace("O", "") for label in classes.tolist()}
    return "B" in marks and marks <= {"B", "I", "E", "S", ""}


def _positions(labels: Any, classes: np.ndarray, what: str) -> np.ndarray:
    values = np.asarray(labels).reshape(-1)
    hidden = values == ("" if values.dtype.kind == "U" else -1)
    at = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    strange = (classes[at] != values) & ~hidden
    if strange.any():
        raise InputError(f"{what} holds the label {values[strange][0]}, which is not among the classes.")
    return np.where(hidden, -1, at)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.full(np.shape(b), np.nan), where=np.asarray(b) > 0)


def _finite(value: Any) -> float | int | None:
    number = value.item()
    return number if np.isfinite(number) else None
