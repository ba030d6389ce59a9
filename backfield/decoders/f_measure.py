"""Decoders for the F-measure of label 1 ([S11] §5.1): the most probable variables are positive, and each says how many.

The losses ``f_measure(threshold=...)`` are their differentiable training versions; ``losses._thresholds`` has the rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.decoders.base import Decoder
from backfield.decoders.max_marginal import MaxMarginal
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.sampling.gibbs import sample
from backfield.losses._thresholds import balanced_count, expected_count, ranking, sampled_count


class TopCount(Decoder):
    """A decoder that calls the so many most probable outputs positive."""

    def count(self, b: np.ndarray, theta: Potentials, outputs: np.ndarray) -> int:
        """Return how many of the outputs (numbers of variables) with probabilities ``b`` are positive."""
        raise NotImplementedError

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> np.ndarray:
        """Return labels: outputs by their rank, other variables by their largest marginal."""
        assert mu is not None
        chosen = np.arange(mu.graph.n_variables) if outputs is None else np.flatnonzero(outputs)
        if (mu.graph.labels[chosen] != 2).any():
            raise InputError(f"{self.name} is for binary variables: label 1 is positive.")
        labels = MaxMarginal().decode(theta, mu).astype(np.int64)
        if len(chosen) == 0:
            return labels
        b = mu.unary_flat[mu.graph.layout.var_ptr[chosen] + 1]
        labels[chosen] = 0
        labels[chosen[ranking(b)[: self.count(b, theta, chosen)]]] = 1
        return labels


@dataclass(frozen=True, repr=False)
class BalancedThreshold(TopCount, name="balanced_threshold"):
    """As many outputs positive as negative: the simple decoder of [S11]."""

    def count(self, b: np.ndarray, theta: Potentials, outputs: np.ndarray) -> int:
        """Return half of the outputs."""
        return balanced_count(b)


@dataclass(frozen=True, repr=False)
class ExpectedF(TopCount, name="expected_f"):
    """The outputs with the largest expected F-measure, if they were independent given the input."""

    def count(self, b: np.ndarray, theta: Potentials, outputs: np.ndarray) -> int:
        """Return the count of largest expected F."""
        return expected_count(b)


@dataclass(frozen=True, repr=False)
class SampledThreshold(TopCount, name="sampled_threshold"):
    """The threshold with the best F-measure over ``n_samples`` Gibbs samples of the posterior ([S11] footnote 4)."""

    n_samples: int = 100
    burn_in: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for key, least in (("n_samples", 1), ("burn_in", 0), ("seed", 0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"sampled_threshold: {key} must be an integer >= {least}, received {value!r}.")

    def count(self, b: np.ndarray, theta: Potentials, outputs: np.ndarray) -> int:
        """Return the count of largest mean F over samples."""
        drawn = sample(theta, self.n_samples, seed=self.seed, burn_in=self.burn_in)
        return sampled_count(b, drawn[:, outputs])
