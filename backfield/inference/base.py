"""What an inference method is: theta -> marginals mu and log Z.

Two kinds exist. *Direct* methods (enumeration, junction tree, sampling) implement :meth:`Inference.infer`.
*Iterative* methods give an :class:`~backfield.inference.engine.Engine`; running, stopping, conditioning and every gradient
strategy are then written once, for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.graph import Graph, Potentials
from backfield.graph.clamping import clamp_of
from backfield.graph.conditioning import Restriction, check_labels
from backfield.inference.clamped import ClampedEngine
from backfield.inference.engine import Adjoint as Adjoint
from backfield.inference.engine import Engine as Engine
from backfield.inference.reduced import ReducedEngine, restriction_of
from backfield.registry import Component

#: Where no tolerance is given, a run counts as converged when its last change was below this.
DEFAULT_TOLERANCE = 1e-5


@dataclass
class Result:
    """Marginals and log Z of one inference.

    ``bound`` says how ``log_partition`` relates to log Z here: ``'exact'``, ``'lower'``, ``'upper'``, ``'bethe'`` or
    ``'none'``. What holds at convergence only is claimed only there.
    """

    marginals: Potentials
    log_partition: float
    bound: str = "exact"
    converged: bool = True
    n_iter: int = 0
    residual: float = 0.0
    residuals: list[float] = field(default_factory=list)
    log_partition_error: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    #: How far log Z can be below and above ``log_partition``, where a method knows more than ``bound`` says.
    room_below: float = np.inf
    room_above: float = np.inf

    @property
    def lower(self) -> float:
        """A number that log Z is not below; -inf where none is known."""
        return self.log_partition - (0.0 if self.bound in ("exact", "lower") else self.room_below)

    @property
    def upper(self) -> float:
        """A number that log Z is not above; inf where none is known. Message passing must have converged for it."""
        known = self.bound == "exact" or (self.bound == "upper" and self.converged)
        return self.log_partition + (0.0 if known else self.room_above)

    @property
    def unary(self) -> Any:
        """Marginals of the variables, shaped as ``theta.unary``."""
        return self.marginals.unary

    @property
    def factors(self) -> Any:
        """Marginals of the factors, shaped as ``theta.factors``."""
        return self.marginals.factors

    def shaped(self) -> np.ndarray:
        """Return the marginals of the variables as an array, with the shape of the grid where the graph is one."""
        graph = self.marginals.graph
        if graph.n_variables and (graph.labels != graph.labels[0]).any():
            raise InputError("the variables have different numbers of labels; read .unary, one array for each.")
        return np.asarray(self.unary).reshape(*(graph.shape or (graph.n_variables,)), -1)

    def plot(self, names: Sequence[Any] | None = None, ax: Any = None) -> Any:
        """Draw the marginals of the variables and return the axes: a picture of a grid, else labels by variables."""
        from backfield import drawing

        values = self.shaped()
        return drawing.draw_marginals(drawing.axes(ax), values, range(values.shape[-1]) if names is None else names)

    def _repr_html_(self) -> str:
        from backfield import drawing

        bound = {"lower": "lower bound", "upper": "upper bound", "bethe": "Bethe approximation"}.get(self.bound, self.bound)
        rows = {"graph": self.marginals.graph, "log Z": f"{self.log_partition:.6g} ({bound})"}
        rows |= {"converged": self.converged, "iterations": self.n_iter} if self.n_iter else {}
        return drawing.html_table("Result", rows)


class Ending(NamedTuple):
    """How a run of sweeps ended."""

    n_iter: int
    residual: float
    converged: bool


class Piece(NamedTuple):
    """Marginals of a piece of a field, and the largest numbers that decide which kernels may run it."""

    beliefs: np.ndarray
    demand: np.ndarray  # those of all pieces, one maximum for each number, are those of the whole field


class Inference(Component):
    """A method that turns log-potentials into marginals."""

    room: ClassVar[str] = "inference"
    #: Has derivatives: an engine with ``*_vjp``, or :meth:`vjp`.
    differentiable: ClassVar[bool] = True
    #: d mu / d theta is symmetric at convergence (mu is the gradient of some A(theta)).
    symmetric: ClassVar[bool] = False
    #: The relation of ``log_partition`` to log Z at convergence.
    bound: ClassVar[str] = "none"
    #: Marginals of factors are products of those of variables.
    factorised: ClassVar[bool] = False
    #: Several binary images of one size as one graph run on the kernels of one image.
    stacks_images: ClassVar[bool] = False

    def infer(self, theta: Potentials) -> Result:
        """Return marginals and log Z of ``theta``."""
        raise NotImplementedError

    def supports(self, theta: Potentials) -> bool:
        """Whether the method runs on the groups of ``theta`` as they are; for others they are written out as tables."""
        return theta.has_tables_only

    @property
    def separable(self) -> bool:
        """Whether in a disconnected graph each part gets the numbers that it gets alone, and log Z is the sum of theirs."""
        return False

    def beliefs(self, theta: Potentials) -> np.ndarray:
        """Return the marginals of the variables alone, flat as the unary tables: all that predictions need."""
        return self.infer(theta).marginals.unary_flat

    def reach(self, graph: Graph) -> int:
        """Return over how many edges a marginal depends on theta at the most; refused where there is no such number."""
        what = _field_of(graph)
        raise InputError(
            f"{self!r} looks at the whole {what} at once, so it has no tiles; use a method with n_iter sweeps, such "
            "as tree_reweighted(n_iter=5)."
        )

    def piece(self, theta: Potentials, rung: int) -> Piece:
        """Return the marginals of a piece of a field with the kernels of a rung: 0 the fastest, higher ones the safer.

        Pieces of one field must all run on the lowest rung that is :meth:`enough` for the demands of all.
        """
        return Piece(self.beliefs(theta), np.zeros(0))

    def enough(self, rung: int, demand: np.ndarray, dtype: Any) -> bool:
        """Whether a whole field of this demand, given in ``dtype``, would be run by the kernels of a rung."""
        return True

    def sees_bad_numbers(self, graph: Graph) -> bool:
        """Whether the method itself asks potentials to ``verify`` where they are not finite or huge."""
        return False


class ExactInference(Inference):
    """A method whose marginals are exact; its Jacobian is the covariance, which :meth:`vjp` applies."""

    symmetric: ClassVar[bool] = True
    bound: ClassVar[str] = "exact"

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        raise NotImplementedError

    def log_partition_and_gradient(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and its gradient in the kinds of theta: marginals, of tied groups contracted."""
        log_partition, mu = self.marginals(theta.written_out())
        return log_partition, theta.contract(mu)

    def vjp(self, theta: Potentials, d_mu: Potentials) -> Potentials:
        """Return d_theta = (d mu / d theta)' d_mu."""
        raise NotImplementedError


class IterativeInference(Inference):
    """A method with an :class:`Engine`; subclasses are dataclasses with ``n_iter`` and ``tol``."""

    #: Parameters with which the method is smooth enough for differences of its values to follow.
    gentle: ClassVar[dict[str, Any]] = {}
    #: The kernels that also give derivatives with respect to parameters and to where iterations start.
    plain_family: ClassVar[str] = "general"

    n_iter: Any  # a number, or "auto" in estimators, whose fit chooses it
    tol: float | None

    def engine(self, theta: Potentials) -> Engine:
        """Bind the method to ``theta``, in which no variable has one possible label of several."""
        raise NotImplementedError

    def bind(self, theta: Potentials) -> Engine:
        """Bind the method to any ``theta``; variables with one possible label are set apart (see ``graph.clamping``)."""
        if self.n_iter == "auto":
            raise InputError(f"{self!r}: n_iter='auto' is chosen by the fit of an estimator; give a number here.")
        clamp = theta.clamp if theta.clamp is not None or theta.known_finite else clamp_of(theta)
        if clamp is None:
            return self.engine(theta)
        if clamp.most and self.reducible(theta.graph):
            reduced = self._reduced(theta, restriction_of(clamp))
            if reduced is not None:
                return reduced
        plain = clamp.apply(theta)
        check_labels(plain, "they are all forbidden (-inf), by themselves or by neighbours with one possible label")
        return ClampedEngine(self.engine(plain), clamp, theta)

    def _reduced(self, theta: Potentials, restriction: Restriction) -> Engine | None:
        """Bind to the model without the fixed variables; None where nothing is left, or a free variable has no label."""
        if restriction.graph is None:
            return None
        reduced, constant = restriction.reduce(theta)
        assert reduced is not None
        possible = np.maximum.reduceat(reduced.unary_flat.real, restriction.graph.layout.var_ptr[:-1]).min() > -np.inf
        if not possible or not np.isfinite(constant):
            return None
        return ReducedEngine(self.restricted(restriction).engine(reduced), restriction, constant, theta)

    def reducible(self, graph: Graph) -> bool:
        """Whether :meth:`restricted` is there, and its kernels are not much slower than those for the whole graph."""
        return False

    def restricted(self, restriction: Restriction) -> IterativeInference:
        """Return the method that does in a reduced graph what this one does in the whole graph: its rho, its order."""
        raise NotImplementedError

    def bound_for(self, graph: Graph) -> str:
        """Return the bound that holds on this graph."""
        return self.bound

    def bounded(self, engine: Engine, state: np.ndarray, value: float, converged: bool) -> tuple[float, str]:
        """Return what is reported as ``log_partition``, and the bound that it is at this state."""
        return value, self.bound_for(engine.theta.graph)

    def phases(self, graph: Graph) -> int | None:
        """Return over how many edges one sweep carries information at the most; None where there is no limit."""
        return None

    def reach(self, graph: Graph) -> int:
        """Return the edges that information crosses in ``n_iter`` sweeps."""
        what = _field_of(graph)
        if self.tol is not None:
            raise InputError(
                f"{self!r} runs until the whole {what} has converged, so it has no tiles; give n_iter without tol."
            )
        phases = self.phases(graph)
        if phases is None:
            raise InputError(
                f"{self!r} updates variables one after the other, which carries information across the whole {what} in a "
                "sweep, so it has no tiles; use schedule='lattice' or 'flooding'."
            )
        return self.n_iter * phases

    def infer(self, theta: Potentials) -> Result:
        """Iterate from the starting state and return the marginals."""
        engine = self.bind(theta)
        state = engine.init()
        residuals = self.iterate(engine, state)
        run = self.result(engine, state, residuals)
        run.marginals = run.marginals.astype(theta.dtype)  # an engine may have computed in a wider type
        return run

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Iterate and return log Z and the marginals; nothing is done to find a residual or a bound that nobody reads."""
        engine, state = self._run(theta)
        mu = engine.marginals(state)
        return float(np.real(engine.value(state, mu))), mu.astype(theta.dtype)

    def beliefs(self, theta: Potentials) -> np.ndarray:
        """Iterate and return the marginals of the variables; marginals of factors, log Z and residuals are left out."""
        engine, state = self._run(theta)
        return engine.beliefs(state).astype(theta.dtype, copy=False)

    def _run(self, theta: Potentials) -> tuple[Engine, np.ndarray]:
        """Iterate; return the engine and the last state."""
        engine = self.bind(theta)
        state = engine.init()
        if self.tol is None:
            engine.sweeps(state, 0, self.n_iter)
        else:
            self.ending(self.iterate(engine, state))
        return engine, state

    def iterate(self, engine: Engine, state: np.ndarray) -> list[float]:
        """Sweep ``state`` in place, ``n_iter`` times or until ``tol``; return the changes of marginals and messages."""
        if self.tol is None:
            if self.n_iter == 0:
                return []
            engine.sweeps(state, 0, self.n_iter - 1)
            last = engine.beliefs(state)
            engine.sweep(state, self.n_iter - 1)
            change = largest_change(last, engine.beliefs(state))
            if change < DEFAULT_TOLERANCE and engine.has_messages:
                following = state.copy()
                engine.sweep(following, self.n_iter)
                change = max(change, engine.most_changed(state, following)[0])
            return [change]
        residuals: list[float] = []
        progress = Progress(engine, state, self.tol)
        for t in range(self.n_iter):
            engine.sweep(state, t)
            residuals.append(progress.step(state, whole=t == self.n_iter - 1))
            if residuals[-1] < self.tol:
                break
        return residuals

    def result(self, engine: Engine, state: np.ndarray, residuals: list[float]) -> Result:
        """Read the result off a state."""
        mu, ending = engine.marginals(state), self.ending(residuals)
        value, bound = self.bounded(engine, state, float(np.real(engine.value(state, mu))), ending.converged)
        return Result(mu, value, bound=bound, residuals=residuals, **ending._asdict())

    def ending(self, residuals: list[float]) -> Ending:
        """Return how a run ended; warn where its marginals have not come below ``tol``."""
        residual = float(residuals[-1] if residuals else np.inf)
        converged = residual < (DEFAULT_TOLERANCE if self.tol is None else self.tol)
        if self.tol is not None and not converged:
            warnings.warn(
                # No figures in the text: Python shows the same warning once, not for every image of a data set.
                f"{self!r} stopped before its marginals changed by less than tol; give more n_iter, or damping.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return Ending(self.n_iter if self.tol is None else len(residuals), residual, converged)


class Progress:
    """How much a run under a tolerance changes from sweep to sweep.

    Where marginals are saturated they stand still while messages still move: a run whose marginals change by less than the
    tolerance is asked for its messages as well. The message that moved most is then looked at first: while it moves, nobody
    needs to look at the others, which takes longer than a sweep.
    """

    def __init__(self, engine: Engine, state: np.ndarray, tol: float) -> None:
        self.engine, self.tol = engine, tol
        self.state = state.copy()
        self._beliefs: np.ndarray | None = engine.beliefs(state)
        self._restless: slice | None = None  # where a message moved when all were looked at

    def step(self, state: np.ndarray, whole: bool = False) -> float:
        """Return the largest change since the last call, or, unless the ``whole`` is asked for, one that is too large."""
        change = 0.0 if whole or self._restless is None else self._of(self._restless, state)
        if change >= self.tol:
            self._beliefs = None
        else:
            last = self.engine.beliefs(self.state) if self._beliefs is None else self._beliefs
            self._beliefs = self.engine.beliefs(state)
            change = largest_change(last, self._beliefs)
            if change < self.tol:
                change = max(change, self._of_messages(state))
        np.copyto(self.state, state)
        return change

    def _of(self, part: slice, state: np.ndarray) -> float:
        return self.engine.most_changed(self.state.reshape(-1)[part], state.reshape(-1)[part])[0]

    def _of_messages(self, state: np.ndarray) -> float:
        change, place = self.engine.most_changed(self.state, state)
        self._restless = slice(place, place + 1) if change >= self.tol else None
        return change


def _field_of(graph: Graph) -> str:
    return "field" if graph.shape is None else {1: "line", 2: "image"}.get(len(graph.shape), "volume")


def largest_change(before: np.ndarray, after: np.ndarray) -> float:
    """Largest absolute difference; NaN is never smaller than a tolerance."""
    return float(np.abs(after - before).max(initial=0.0))


def check_iterations(method: Any) -> None:
    """Refuse iteration settings that make no sense."""
    whole = isinstance(method.n_iter, int | np.integer) and not isinstance(method.n_iter, bool) and method.n_iter >= 0
    if not whole and method.n_iter != "auto":
        raise InputError(f"{method.name}: n_iter must be an integer >= 0, received {method.n_iter!r}.")
    if isinstance(method.tol, bool) or not (
        method.tol is None or (isinstance(method.tol, int | float) and 0 < method.tol < np.inf)
    ):
        raise InputError(f"{method.name}: tol must be None or a positive number, received {method.tol!r}.")
    if not (isinstance(method.damping, int | float) and 0 <= method.damping < 1):
        raise InputError(f"{method.name}: damping must be in [0, 1), received {method.damping!r}.")
