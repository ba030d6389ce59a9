r"""Gibbs sampling: every variable in turn takes a label drawn from its conditional given all others.

    p(x_i | rest) ∝ exp( theta(x_i) + sum_{c: i in c} theta(x_i, x_c\i) )

Marginals are Rao-Blackwellised: the mean over kept sweeps of the conditionals themselves, not of the labels drawn from
them; mu(x_c) is the mean over the variables i of c of p(x_i | rest) [x_c\i]. They sum to one; counts would vary more.

log Z by annealed importance sampling (``_annealing``): ``8 n_chains`` runs of ``n_samples / 8`` steps (at least 32), as
many sweeps as the marginals take. The chains start from max-product's labels and from the states that these runs end
in, those farthest from each other. No estimate is below the value of a start, which bounds log Z from below.

Sampling reaches all states only where none is forbidden; chains that are caught in different parts give a large R-hat.

Cost O(degree · L) per variable and sweep; memory O(theta + n_chains · n).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import check_possible
from backfield.graph.labeling import as_labeling
from backfield.inference.base import Inference, Result
from backfield.inference.sampling.annealing import anneal, dispersed, log_mean, possible_states
from backfield.inference.sampling.gibbs_kernels import collect, gibbs_steps, rng_states
from backfield.map_solvers.max_product import MaxProduct

#: Chains agree where the split R-hat of every label's indicator is below this.
R_HAT_LIMIT = 1.05

_RUNS_PER_CHAIN = 8  # of annealed importance sampling
_FEWEST_STEPS = 32
_CHAIN, _ANNEAL = 0, 1  # streams of random numbers


@dataclass(frozen=True, repr=False)
class Gibbs(Inference, name="gibbs"):
    """Single-site Gibbs sampling on any graph, with an estimate of log Z and its error.

    The result is ``converged`` where ``extra["r_hat"]``, the largest split R-hat over all labels, is below 1.05.

    Parameters
    ----------
    n_samples : int
        Sweeps of each chain that count.
    burn_in : int
        Sweeps of each chain that are thrown away first.
    n_chains : int
    thin : int
        Every ``thin``-th sweep counts.
    seed : int
        The same seed gives the same bytes.
    """

    n_samples: int = 1000
    burn_in: int = 100
    n_chains: int = 4
    thin: int = 1
    seed: int = 0

    differentiable: ClassVar[bool] = False
    bound: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        for key, least in (("n_samples", 1), ("burn_in", 0), ("n_chains", 1), ("thin", 1), ("seed", 0)):
            _whole(f"gibbs: {key}", getattr(self, key), least)

    def infer(self, theta: Potentials) -> Result:
        """Return sampled marginals and log Z with its standard error."""
        check_possible(theta)
        exact = theta.astype(np.float64)
        steps = max(_FEWEST_STEPS, self.n_samples // _RUNS_PER_CHAIN)
        rngs = rng_states(self.seed, _RUNS_PER_CHAIN * self.n_chains, _ANNEAL)
        x, log_w, log_z0 = anneal(exact, rngs, steps)
        best = MaxProduct(n_iter=50, damping=0.1).solve(exact)
        starts = dispersed(possible_states(exact, x, log_w, rngs, best), self.n_chains)
        log_ratio, error = log_mean(log_w)
        log_z = max(log_z0 + log_ratio, *(exact.score(start) for start in starts))
        mu, r_hat = self._run_chains(exact, starts)
        return Result(
            marginals=mu.astype(theta.dtype),
            log_partition=log_z,
            bound=self.bound,
            converged=bool(r_hat < R_HAT_LIMIT),
            n_iter=self.burn_in + self.n_samples * self.thin,
            residual=r_hat - 1,
            log_partition_error=max(error, log_z - (log_z0 + log_ratio)),
            extra={"r_hat": r_hat},
        )

    def _run_chains(self, theta: Potentials, x: np.ndarray) -> tuple[Potentials, float]:
        """Run the chains from the rows of ``x``, in place; return the marginals and R-hat."""
        mu = theta.like(np.zeros(len(theta.vector())))
        counts = np.zeros((self.n_chains, 2, len(theta.unary_flat)))
        rngs = rng_states(self.seed, self.n_chains, _CHAIN)
        tables = theta.graph.layout, theta.unary_flat, theta.factors_flat
        for chain in range(self.n_chains):
            gibbs_steps(*tables, x[chain], rngs[chain], self.burn_in)
            sums = mu.unary_flat, mu.factors_flat, counts[chain]
            collect(*tables, self.n_samples, self.thin, x[chain], rngs[chain], *sums)
        total = self.n_chains * self.n_samples
        marginals = Potentials.from_flat(theta.graph, mu.unary_flat / total, mu.factors_flat / total)
        return marginals, _split_r_hat(counts.reshape(2 * self.n_chains, -1), self.n_samples // 2)


def sample(theta: Potentials, n_samples: int, seed: int = 0, burn_in: int = 100, thin: int = 1) -> np.ndarray:
    """Return ``n_samples`` labelings (n_samples, n) of one chain, ``thin`` sweeps apart."""
    for key, value in (("n_samples", n_samples), ("seed", seed), ("burn_in", burn_in)):
        _whole(key, value, 0)
    _whole("thin", thin, 1)
    check_possible(theta)
    exact = theta.astype(np.float64)
    rngs = rng_states(seed, 1, _ANNEAL)
    x, log_w, _ = anneal(exact, rngs, _FEWEST_STEPS)
    state = possible_states(exact, x, log_w, rngs)[-1]
    rng = rng_states(seed, 1, _CHAIN)[0]
    tables = exact.graph.layout, exact.unary_flat, exact.factors_flat
    gibbs_steps(*tables, state, rng, burn_in)
    out = np.empty((n_samples, exact.graph.n_variables), dtype=np.int64)
    for t in range(n_samples):
        gibbs_steps(*tables, state, rng, thin)
        out[t] = state
    return out


def gibbs_chain(theta: Potentials, start: np.ndarray, n_sweeps: int, seed: int = 0) -> np.ndarray:
    """Return the labels (n,) that ``n_sweeps`` sweeps from ``start`` lead to (contrastive divergence)."""
    labeling = as_labeling(theta.graph, start, "start")
    if not labeling.known.all():
        raise InputError(f"start[{int(np.argmin(labeling.known))}] is hidden; a chain starts from one label each.")
    x = labeling.labels.copy()
    rng = rng_states(_whole("seed", seed, 0), 1, _CHAIN)[0]
    tables = theta.unary_flat, theta.factors_flat
    gibbs_steps(theta.graph.layout, *tables, x, rng, _whole("n_sweeps", n_sweeps, 0))
    return x


def _whole(what: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what} must be an integer >= {least}, received {value!r}.")
    return int(value)


def _split_r_hat(counts: np.ndarray, n: int) -> float:
    """Return the largest R-hat over all labels, from how often each was met in half-chains (2C, U) of n sweeps."""
    if n < 2:
        return np.inf
    mean = counts / n
    within = (mean * (1 - mean)).mean(axis=0) * n / (n - 1)
    between = mean.var(axis=0, ddof=1)
    stuck = within == 0
    ratio = between / np.where(stuck, 1, within)
    r2 = np.where(stuck, np.where(between > 0, np.inf, 1), (n - 1) / n + ratio)
    return float(np.sqrt(r2.max()))
