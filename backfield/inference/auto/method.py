"""Choose for the user: exact inference where it fits into memory and time, else the tightest bounds in the time.

1. Zeros are propagated, and variables that they decide disappear (``exact.propagation``).
2. Orders of elimination are tried. If the tables of the best one fit into memory and time: exact, and done.
3. Else the best bounds so far, from above by tree-reweighted message passing and weighted mini-buckets, from below by mean
   field, naive and over clusters. They never cross and never get worse. Marginals are those of loopy belief propagation
   where it converges, else of tree-reweighted message passing.

The result has ``lower`` and ``upper``, and ``extra["known"]``: one line on what is known.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import Restriction, check_possible
from backfield.inference.auto.bounds import Bounds, LowerByClusters, UpperByMiniBuckets, plain_upper, tighten
from backfield.inference.base import Inference, Result
from backfield.inference.exact.base import ImpossibleError, check_positive
from backfield.inference.exact.elimination import Elimination, TooLargeError, band_order, eliminate, in_order
from backfield.inference.exact.junction import Exact
from backfield.inference.exact.junction_tree import JunctionTree, free_scopes
from backfield.inference.exact.products import Products
from backfield.inference.exact.propagation import propagate
from backfield.inference.mean_field.method import MeanField
from backfield.inference.message_passing.loopy_bp import LoopyBP
from backfield.inference.message_passing.tree_reweighted import TreeReweighted
from backfield.kernels.compiling import clock
from backfield.map_solvers.auto import solve

#: Seconds for one entry of exact inference: as products, and as logarithms block by block.
FAST, SLOW = 1e-8, 1.5e-7
#: Beyond so many variables only the band order is tried: others take longer to find than a short run may last.
MANY = 4000
#: Tables of an order that bounds may still follow, though nothing exact will.
HOPELESS = 2**45


@dataclass(frozen=True, repr=False)
class Auto(Inference, name="auto"):
    """Exact where it fits, else bounds in the time that is given.

    Parameters
    ----------
    seconds : float
        Time for one inference.
    memory : int
        Bytes that tables may take.
    """

    differentiable: ClassVar[bool] = False

    seconds: float = 10.0
    memory: int = 2 * 2**30

    def __post_init__(self) -> None:
        check_positive(self, "memory")
        number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not (number and 0 < self.seconds < np.inf):
            raise InputError(f"auto: seconds must be a positive number, received {self.seconds!r}.")

    def infer(self, theta: Potentials) -> Result:
        """Return marginals and log Z, or an estimate of it with ``lower`` and ``upper``."""
        start = clock()
        exact = theta.written_out().astype(np.float64)
        allowed = propagate(exact, np.ones(len(exact.unary_flat), dtype=bool))
        if allowed.all() and theta.graph.labels.min() > 1:
            run = self._solve(exact, start)
        else:
            run = self._restricted(exact, Restriction(theta.graph, allowed), start)
        run.marginals = theta.like(run.marginals.vector().astype(theta.dtype))
        return run

    def _restricted(self, theta: Potentials, restriction: Restriction, start: float) -> Result:
        reduced, constant = restriction.reduce(theta)
        if reduced is None:
            return Result(restriction.expand(None), float(constant), extra={"known": "exact: zeros decide every variable"})
        check_possible(reduced)
        run = self._solve(reduced, start)
        run.marginals = restriction.expand(run.marginals)
        run.log_partition += float(constant)
        return run

    def _solve(self, theta: Potentials, start: float) -> Result:
        order = self._order(theta, start)
        if isinstance(order, Elimination):
            run = self._exact(theta, order, start)
            if run is not None:
                return run
            return self._bounded(theta, order.order.tolist(), start)
        return self._bounded(theta, order, start)

    def _order(self, theta: Potentials, start: float) -> Elimination | list[int]:
        """Return the best elimination found; the plain order of a band where all are hopeless."""
        labels, scopes = free_scopes(theta.graph)
        try:
            if len(labels) > MANY:
                return in_order(labels, scopes, band_order(len(labels), scopes))
            return eliminate(labels, scopes, seconds=0.05 * self.seconds, hopeless=HOPELESS)
        except TooLargeError:
            return band_order(len(labels), scopes)

    def _left(self, start: float) -> float:
        return start + self.seconds - clock()

    def _exact(self, theta: Potentials, order: Elimination, start: float) -> Result | None:
        known = f"exact: a junction tree of {order.entries:,} entries"
        if order.entries * FAST <= self._left(start):
            with suppress(TooLargeError):
                products = Products(theta.graph, order.entries, order, memory=self.memory)
                found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
                if found is not None:
                    return Result(theta.like(found[1]), found[0], extra={"known": known})
        if order.largest * 32 > self.memory or order.entries * SLOW > self._left(start):
            return None
        theta.graph.compiled("junction_tree", lambda: JunctionTree(theta.graph, order))
        try:
            run = Exact(memory=self.memory).infer(theta)
        except ImpossibleError:
            raise
        except InputError:  # more memory is needed after all
            return None
        run.extra["known"] = known
        return run

    def _bounded(self, theta: Potentials, order: list[int], start: float) -> Result:
        bounds, deadline = Bounds(), start + self.seconds
        bounds.drop_upper(plain_upper(theta), "the largest entries of factors")
        run = _propagated(theta, bounds)
        beliefs = _started(theta, bounds, run)
        upper = UpperByMiniBuckets(theta, order, bounds, self.memory // 2)
        tighten(bounds, [upper, LowerByClusters(theta, beliefs, bounds, self.memory // 2)], deadline)
        return _answer(bounds, run, clock() - start)


def _propagated(theta: Potentials, bounds: Bounds) -> Result:
    """Pass messages; return the run whose marginals are to be used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        loopy = LoopyBP(n_iter=300, tol=1e-7, damping=0.2).infer(theta)
        reweighted = TreeReweighted(n_iter=300, tol=1e-10).infer(theta)
    if reweighted.bound == "upper":  # claimed only where it holds, converged or not
        # What its messages still miss is far below this.
        slack = 1e-7 * max(1.0, abs(reweighted.log_partition))
        bounds.drop_upper(reweighted.log_partition + slack, "tree-reweighted message passing")
    return loopy if loopy.converged else reweighted


def _started(theta: Potentials, bounds: Bounds, run: Result) -> np.ndarray:
    """Raise the lower bound by mean field and by one labeling; return the beliefs that mean field starts from."""
    beliefs = run.marginals.unary_flat
    if theta.is_finite:
        naive = MeanField(n_iter=100).infer(theta)
        bounds.raise_lower(naive.log_partition, "mean field")
        return naive.marginals.unary_flat
    try:
        labels = solve(theta).labels
    except InputError:
        return beliefs
    score = theta.score(labels)
    bounds.raise_lower(score, "one labeling")
    if score > -np.inf:
        beliefs = np.zeros_like(beliefs)
        beliefs[theta.graph.layout.var_ptr[:-1] + labels] = 1
    return beliefs


def _answer(bounds: Bounds, run: Result, seconds: float) -> Result:
    if bounds.meet:
        known = f"log Z = {bounds.lower:.10g}: the bounds meet"
        value = bounds.lower
    else:
        known = (
            f"log Z is in [{bounds.lower:.6g}, {bounds.upper:.6g}] after {seconds:.3g} s: "
            f"above by {bounds.above}, below by {bounds.below}"
        )
        value = _estimate(bounds, run)
    return Result(
        run.marginals,
        value,
        bound="none",
        converged=run.converged,
        n_iter=run.n_iter,
        residual=run.residual,
        room_below=value - bounds.lower,
        room_above=bounds.upper - value,
        extra={"known": known},
    )


def _estimate(bounds: Bounds, run: Result) -> float:
    """Return Bethe's log Z where belief propagation has converged within the bounds, else the middle."""
    if run.bound == "bethe" and run.converged and bounds.lower <= run.log_partition <= bounds.upper:
        return run.log_partition
    finite = [value for value in (bounds.lower, bounds.upper) if np.isfinite(value)]
    return float(np.mean(finite)) if finite else run.log_partition
