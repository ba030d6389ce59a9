"""Annealed importance sampling (Neal 2001): an estimate of log Z, and states for chains to start from.

A model without factors is sampled exactly and has a known log Z; each of T steps towards theta is followed by a sweep
of Gibbs sampling, and log w is the sum of what the steps add to theta·f of the state. Then E[w] = Z / Z_0.

    theta_t(x_c) = beta_t theta(x_c),   beta_t = ((1 + r)^(t/T) - 1) / r,   r = largest range of a factor table

so a large factor is switched on slowly at first, when it matters most. Unary tables are whole from the start, or
grow to their size where their range is above 10. A forbidden entry (-inf) is a penalty that grows like a factor, and is
forbidden only at the last step, so states can leave what is forbidden on the way.

Cost O(degree · L) per variable, run and step; memory O(theta + runs · n).
"""

from __future__ import annotations

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.sampling.gibbs_kernels import gibbs_steps_all
from backfield.kernels.compile import exact_kernel
from backfield.map_solvers import MapResult
from backfield.map_solvers.max_product import MaxProduct

_UNARY_RANGE = 10.0  # a wider independent model is too cold to start from
_LONGER = (250, 1000, 4000)  # steps of further attempts to find a possible state
_REPAIR = 100  # sweeps that may turn an impossible state into a possible one


def anneal(theta: Potentials, rngs: np.ndarray, n_steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return final states (R, n), their log weights (R,), -inf where impossible, and log Z_0."""
    layout, target = theta.graph.layout, theta.factors_flat
    x = np.zeros((len(rngs), theta.graph.n_variables), dtype=np.int64)
    allowed, log_w = target > -np.inf, np.zeros(len(rngs))
    finite = np.where(allowed, target, 0)
    cold, scale, penalty = _ranges(theta)
    tables = theta.unary_flat * cold, np.zeros_like(target)
    log_z0 = np.logaddexp.reduceat(tables[0], layout.var_ptr[:-1]).sum()
    gibbs_steps_all(layout, *tables, x, rngs, 1)  # without factors one sweep is an exact sample
    for t in range(1, n_steps + 1):
        before, tables = tables, (theta.unary_flat, target)
        if t < n_steps:
            beta, wall = (np.expm1(np.log1p(r) * t / n_steps) for r in (scale, penalty))
            unary = theta.unary_flat * cold ** (1 - t / n_steps)
            tables = unary, np.where(allowed, beta / scale * finite, -wall)
        _add_scores(layout, *before, *tables, x, log_w)
        if t < n_steps:
            gibbs_steps_all(layout, *tables, x, rngs, 1)
    return x, log_w, float(log_z0)


def _ranges(theta: Potentials) -> tuple[float, float, float]:
    """Return where annealing goes: the first share of unary, the range of factors, and a penalty that outweighs all."""
    layout = theta.graph.layout
    factors = _range_of(theta.factors_flat, layout.table_ptr)
    unary = _range_of(theta.unary_flat, layout.var_ptr)
    around = unary + np.bincount(layout.scope, factors[layout.slot_factor], minlength=len(unary))
    cold = min(1.0, _UNARY_RANGE / max(1.0, float(unary.max())))
    return cold, max(1e-3, float(factors.max(initial=0))), 30 + float(around.max())


def _range_of(flat: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """Return the range of the finite entries of each table."""
    if len(ptr) == 1:
        return np.zeros(0)
    finite = flat > -np.inf
    high = np.maximum.reduceat(flat, ptr[:-1])
    low = np.minimum.reduceat(np.where(finite, flat, np.inf), ptr[:-1])
    return np.where(high > -np.inf, high, 0) - np.where(low < np.inf, low, 0)


def possible_states(
    theta: Potentials, x: np.ndarray, log_w: np.ndarray, rngs: np.ndarray, best: MapResult | None = None
) -> np.ndarray:
    """Return what is possible of the labels ``best`` and the annealed states; where nothing is, look longer."""
    found = x[log_w > -np.inf]
    if len(found) == 0:
        gibbs_steps_all(theta.graph.layout, theta.unary_flat, theta.factors_flat, x, rngs, _REPAIR)
        found = x[np.array([theta.score(state) > -np.inf for state in x])]
    if len(found) == 0 and best is None:
        best = MaxProduct().solve(theta)
    if best is not None and best.value > -np.inf:
        found = np.concatenate([best.labels[None], found])
    for n_steps in _LONGER:
        if len(found) == 0:
            x, log_w, _ = anneal(theta, rngs, n_steps)
            found = x[log_w > -np.inf]
    if len(found):
        return found
    raise InputError(
        "gibbs found no possible configuration: the potentials forbid (-inf) every one that it tried; "
        "use brute_force or exact, or finite potentials."
    )


def dispersed(x: np.ndarray, count: int) -> np.ndarray:
    """Return ``count`` of the states, each the farthest from those before it: R-hat shall see all modes."""
    picked = [0]
    distance = (x != x[0]).sum(axis=1)
    while len(picked) < count:
        picked.append(int(np.argmax(distance)))
        distance = np.minimum(distance, (x != x[picked[-1]]).sum(axis=1))
    return x[picked]


def log_mean(log_w: np.ndarray) -> tuple[float, float]:
    """Return the log of the mean weight and its standard error (infinite where all weights are zero).

    The spread of the weights alone would look small exactly when one of them dwarfs all others, and their mean is then
    far too small. So log w is taken as normal above its median m, with variance s^2, which adds the variance of s^2/2
    and the square of what is missing to m + s^2/2.
    """
    runs, top = len(log_w), log_w.max()
    if top == -np.inf:
        return -np.inf, np.inf
    w = np.exp(log_w - top)
    result = float(top + np.log(w.mean()))
    met = log_w[log_w > -np.inf]
    m = np.median(met)
    s2 = float(np.mean((met[met >= m] - m) ** 2))
    missing = max(0.0, float(m + s2 / 2 - result + np.log(len(met) / runs)))
    variance = w.var(ddof=1) / (runs * w.mean() ** 2) + s2**2 / (2 * (runs - 1)) + missing**2
    return result, float(np.sqrt(variance))


@exact_kernel
def _add_scores(layout, before_u, before_c, after_u, after_c, x, log_w):
    """Add theta·f of each row of x, ``after`` minus ``before``; what is -inf after adds -inf."""
    for r in range(len(x)):
        total = 0.0
        for i in range(len(layout.labels)):
            entry = layout.var_ptr[i] + x[r, i]
            total += after_u[entry] - before_u[entry]
        for c in range(len(layout.table_ptr) - 1):
            entry = layout.table_ptr[c]
            for k in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                entry += layout.stride[k] * x[r, layout.scope[k]]
            total += after_c[entry] - before_c[entry]
        log_w[r] += total
