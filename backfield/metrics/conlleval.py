"""Phrases of tagged sentences: the table of ``conlleval``, and whether probabilities of spans mean what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from backfield.metrics.tally import N_BINS, Calibration, Metrics, _calibration, _squares, chunks_of


def conlleval(metrics: Metrics) -> str:
    """Return the lines that ``conlleval`` prints: accuracy, precision, recall and FB1, of all phrases and of each type."""
    chunks = metrics.chunks
    assert chunks is not None
    right, real, found = (sum(counts) for counts in zip((0, 0, 0), *chunks.counts.values(), strict=True))
    lines = [
        f"processed {metrics.n_variables} tokens with {real} phrases; found: {found} phrases; correct: {right}.",
        f"accuracy: {100 * metrics.accuracy:6.2f}%; {_scores(right, real, found)}",
    ]
    for kind, counts in sorted(chunks.counts.items()):
        lines.append(f"{kind:>17}: {_scores(*counts)}  {counts[2]}")
    return "\n".join(lines)


def _scores(right: int, real: int, found: int) -> str:
    precision, recall = 100 * right / found if found else 0.0, 100 * right / real if real else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


def span_calibration(truth: Iterable[Any], spans: Iterable[Sequence[Any]], n_bins: int = N_BINS) -> Calibration:
    """Return how often predicted spans are right, in bins of their probability.

    Parameters
    ----------
    truth
        The tags of each sentence, "" = hidden; spans over hidden tags count nowhere.
    spans
        What :meth:`backfield.ChainCRF.predict_spans` returns: (start, stop, label, probability) of each sentence.
    """
    bins, squares = np.zeros((3, n_bins)), np.zeros((3, n_bins))
    for tags, found in zip(truth, spans, strict=True):
        here = _span_bins([str(tag) for tag in tags], found, n_bins)
        bins += here
        squares += _squares(here[0], here[2])
    return _calibration(bins, squares)


def _span_bins(tags: Sequence[str], spans: Sequence[Any], n_bins: int) -> np.ndarray:
    """Return per bin the number of spans of a sentence, the sum of their probabilities and how many are right."""
    bins, real = np.zeros((3, n_bins)), chunks_of(tags)
    for start, stop, label, probability in spans:
        if all(tags[start:stop]):
            right = (label, start, stop - 1) in real
            bins[:, min(int(probability * n_bins), n_bins - 1)] += (1, probability, right)
    return bins
