"""Contracts of inference methods."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.api import infer, value_and_gradient
from backfield.errors import ConvergenceWarning, InputError
from backfield.gradients import Truncated
from backfield.graph import Graph, Potentials, batch
from backfield.inference.base import ExactInference, Inference, IterativeInference, Result
from backfield.testing.contract import GENERAL, Contract, adapted, check, close, refuses, require
from backfield.testing.differences import gradient_is_right
from backfield.testing.models import enumerate_model, forbid, models, random_labels, random_potentials

BOUNDS = ("exact", "lower", "upper", "bethe", "none")
FEW = {"n_iter": 3, "n_samples": 20, "burn_in": 5}


def check_inference(part: Any) -> None:
    """Raise AssertionError unless an inference method keeps to the contracts of its room.

    Parameters
    ----------
    part : Inference, class or str
        A method, its class, or its spec. Where it raises InputError for a kind of graph, simpler kinds are tried.
    """
    check("inference", part, CONTRACTS)


def sampled(method: Inference) -> bool:
    """Whether a method draws samples: neither exact nor iterative."""
    return not isinstance(method, ExactInference | IterativeInference)


def converging(method: Any, **wanted: Any) -> Any:
    """Return the method with enough iterations to converge."""
    return adapted(method, **{"n_iter": 5000, "tol": 1e-11, "damping": 0.2, "n_samples": 500, **wanted})


def accepted(method: Any, n: int, scale: float = 1.0, **options: Any) -> Iterator[tuple[np.random.Generator, Potentials]]:
    """Yield models that the method takes."""
    few = adapted(method, n_iter=1, n_samples=2, burn_in=1)
    return models(lambda theta: infer(theta, few), n, scale, **options)


def vector(run: Result) -> np.ndarray:
    """Return all numbers of a result."""
    return np.append(run.marginals.vector(), run.log_partition)


def require_probabilities(run: Result, tolerance: float = 1e-12) -> None:
    """Raise AssertionError unless marginals are probabilities and log Z is finite."""
    mu = run.marginals
    require(np.isfinite(mu.vector()).all(), "marginals that are not finite")
    require(np.isfinite(run.log_partition), f"log_partition={run.log_partition}")
    require(mu.vector().min() >= 0, f"a marginal of {mu.vector().min():.3g}")
    close([np.sum(table) for table in [*mu.unary, *mu.factors]], np.ones(mu.graph.n_variables + mu.graph.n_factors),
          tolerance, "sums of tables and 1")  # fmt: skip


def require_exact(run: Result, theta: Potentials, tolerance: float = 1e-10) -> None:
    """Raise AssertionError unless a result agrees with enumeration."""
    log_z, mu = enumerate_model(theta)
    close(run.log_partition, log_z, tolerance * max(1, abs(log_z)), "log_partition and log Z")
    close(run.marginals.vector(), mu.vector(), tolerance, "marginals and those of enumeration")


def result(method: Any) -> None:
    """A result has the types, shapes and dtype of theta, names its bound, and does not change when it is asked again."""
    for _, theta in accepted(method, 4):
        run = infer(theta, method)
        require(isinstance(run, Result), f"a {type(run).__name__}")
        for key, kind in (("log_partition", float), ("residual", float), ("n_iter", int), ("converged", bool)):
            require(isinstance(getattr(run, key), kind), f"{key} is a {type(getattr(run, key)).__name__}")
        require(run.bound in BOUNDS, f"bound={run.bound!r}")
        require(run.marginals.graph is theta.graph, "marginals of another graph")
        for found, given in ((run.unary, theta.unary), (run.factors, theta.factors)):
            require([np.shape(t) for t in found] == [np.shape(t) for t in given], "tables of another shape")
        require(run.marginals.dtype == np.float64, f"marginals of type {run.marginals.dtype} for float64")
        low = infer(theta, method, dtype="float32")
        require(low.marginals.dtype == np.float32, f"marginals of type {low.marginals.dtype} for float32")
        require((vector(infer(theta, method)) == vector(run)).all(), "other numbers for the same theta")
        if isinstance(method, ExactInference):
            require(run.converged and run.bound == "exact", "an exact method whose result is not exact")
        require(not sampled(method) or run.log_partition_error >= 0, "no log_partition_error")


def iterations(method: Any) -> None:
    """An iterative method does exactly n_iter iterations without tol, and stops at the first change below tol with it."""
    if not isinstance(method, IterativeInference):
        return
    for _, theta in accepted(method, 3):
        for n_iter in (0, 1, 4):
            run = infer(theta, adapted(method, n_iter=n_iter, tol=None))
            require(run.n_iter == n_iter, f"{run.n_iter} iterations for n_iter={n_iter}")
            require_probabilities(run)
        run = infer(theta, converging(method))
        require(run.converged and len(run.residuals) == run.n_iter < 5000, "no convergence in 5000 iterations")
        require(run.residual == run.residuals[-1] < 1e-11 <= min(run.residuals[:-1], default=1), "a late stop")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = infer(theta, adapted(method, n_iter=1, tol=1e-14))
        told = any(issubclass(w.category, ConvergenceWarning) and method.name in str(w.message) for w in said)
        require(run.converged or told, "no ConvergenceWarning from a run that stopped before its tol")
        require(run.n_iter == 1, f"{run.n_iter} iterations for n_iter=1")


def normalised(method: Any) -> None:
    """Marginals are probabilities after any number of iterations: finite, not negative, every table sums to one."""
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-6)):
        for n_iter in (0, 3):
            for _, theta in accepted(method, 20, 3.0):
                require_probabilities(infer(theta, adapted(method, n_iter=n_iter, n_samples=20), dtype=dtype), tolerance)


def consistent(method: Any) -> None:
    """At convergence the marginals of factors sum to those of variables."""
    if sampled(method):
        return
    for _, theta in accepted(method, 10, 0.5):
        run = infer(theta, converging(method))
        for scope, table in zip(theta.graph.factors, run.factors, strict=True):
            for axis, i in enumerate(scope if run.converged else ()):
                others = tuple(k for k in range(len(scope)) if k != axis)
                close(table.sum(axis=others), run.unary[i], 1e-6, "sums of factor marginals and marginals of variables")


def declared_bound(method: Any) -> None:
    """log_partition is equal to log Z, below or above it at convergence, as the result's ``bound`` says."""
    n = converged = 0
    for _, theta in accepted(method, 40):
        log_z, _ = enumerate_model(theta)
        run = infer(theta, converging(method, tol=1e-9, n_samples=100))
        n, converged = n + 1, converged + run.converged
        slack = 1e-9 * max(1, abs(log_z))
        if run.bound == "exact":
            require_exact(run, theta)
        elif run.bound == "lower":
            require(run.log_partition <= log_z + slack, f"a lower bound of {run.log_partition} for log Z = {log_z}")
        elif run.bound == "upper" and run.converged:
            least = log_z - 1e-7 - 6 * run.log_partition_error  # sampled: in expectation
            require(run.log_partition >= least, f"an upper bound of {run.log_partition} for log Z = {log_z}")
    require(sampled(method) or converged >= 0.95 * n, f"convergence on {converged} of {n} models")


def shifts(method: Any) -> None:
    """A constant added to a table moves log_partition by that constant and leaves the marginals."""
    method = adapted(method, n_iter=3)
    for rng, theta in accepted(method, 10):
        tables = [table.copy() for table in [*theta.unary, *theta.factors]]
        constant = 10 * rng.normal()
        tables[rng.integers(len(tables))] += constant
        n = theta.graph.n_variables
        run, moved = infer(theta, method), infer(Potentials(theta.graph, tables[:n], tables[n:]), method)
        close(moved.marginals.vector(), run.marginals.vector(), 0.02 if sampled(method) else 1e-11, "marginals")
        error = (10 * run.log_partition_error if sampled(method) else 1e-10) + 1e-10
        close(moved.log_partition - run.log_partition, constant, error, "the change of log_partition and the constant")


def other_names(theta: Potentials, rng: np.random.Generator) -> tuple[Potentials, Any]:
    """Return the same model under other names and orientations, and the way back for its marginals."""
    graph = theta.graph
    name = rng.permutation(graph.n_variables)
    unary: list[Any] = [None] * graph.n_variables
    for i, table in enumerate(theta.unary):
        unary[name[i]] = table
    turns = [rng.permutation(len(scope)) for scope in graph.factors]
    scopes = [tuple(name[np.asarray(s)[turn]]) for s, turn in zip(graph.factors, turns, strict=True)]
    factors = [table.transpose(turn) for table, turn in zip(theta.factors, turns, strict=True)]

    def back(mu: Potentials) -> np.ndarray:
        tables = [mu.factors[c].transpose(np.argsort(turn)).ravel() for c, turn in enumerate(turns)]
        return np.concatenate([*[mu.unary[name[i]] for i in range(len(name))], *tables])

    return Potentials(Graph([len(table) for table in unary], scopes), unary, factors), back


def other_labels(theta: Potentials, rng: np.random.Generator) -> tuple[Potentials, Any]:
    """Return the same model with the labels in another order, and the way back for its marginals."""
    graph = theta.graph
    turns = [rng.permutation(count) for count in graph.labels]
    inverse = [np.argsort(turn) for turn in turns]

    def turned(tables: Potentials, turns: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        unary = [table[turn] for table, turn in zip(tables.unary, turns, strict=True)]
        pairs = zip(graph.factors, tables.factors, strict=True)
        return unary, [table[np.ix_(*[turns[i] for i in scope])] for scope, table in pairs]

    def back(mu: Potentials) -> np.ndarray:
        unary, factors = turned(mu, inverse)
        return np.concatenate([*unary, *[table.ravel() for table in factors]])

    return Potentials(graph, *turned(theta, turns)), back


def names_of_variables(method: Any) -> None:
    """Variables under other names, and tables turned around, have the same marginals at convergence."""
    _same_under(method, other_names)


def names_of_labels(method: Any) -> None:
    """Labels in another order have the same marginals, at convergence and, without samples, after every iteration."""
    _same_under(method, other_labels)
    if sampled(method):
        return
    method = adapted(method, n_iter=3)
    for rng, theta in accepted(method, 3, 2.0):
        new, back = other_labels(theta, rng)
        close(back(infer(new, method).marginals), infer(theta, method).marginals.vector(), 1e-12, "marginals")


def _same_under(method: Any, change: Any) -> None:
    # Weak potentials: one fixed point, so the order of updates cannot matter at convergence.
    method = converging(method)
    for rng, theta in accepted(method, 8, 0.4):
        new, back = change(theta, rng)
        run, other = infer(theta, method), infer(new, method)
        close(back(other.marginals), run.marginals.vector(), 0.2 if sampled(method) else 1e-8, "marginals")
        error = 6 * (run.log_partition_error + other.log_partition_error) + 1e-8
        close(other.log_partition, run.log_partition, error, "values of log_partition")


def batches(method: Any) -> None:
    """Several models as one batch give the results of each, and the sum of their log_partition."""
    method = adapted(method, n_iter=3)
    thetas = [theta for _, theta in accepted(method, 6, n_max=4)]
    kinds: dict[Any, list[Potentials]] = {}
    for theta in thetas:  # a method for one label count takes no batch of several
        kinds.setdefault((theta.graph.n_labels, theta.graph.arity), []).append(theta)
    for group in [thetas] if _takes(method, batch(thetas)) else kinds.values():
        runs = [infer(theta, method) for theta in group]
        together = infer(batch(group), method)
        unary = np.concatenate([run.marginals.unary_flat for run in runs])
        factors = np.concatenate([run.marginals.factors_flat for run in runs])
        tolerance = 0.1 if sampled(method) else 1e-12
        close(together.marginals.vector(), np.append(unary, factors), tolerance, "marginals")
        error = 10 * sum(run.log_partition_error for run in [*runs, together]) + 1e-10
        close(together.log_partition, sum(run.log_partition for run in runs), error, "log_partition and its sum")


def _takes(method: Any, theta: Potentials) -> bool:
    try:
        infer(theta, method)
    except InputError:
        return False
    return True


def huge_potentials(method: Any) -> None:
    """Potentials of 1e4 beside those of 1 overflow nowhere, also in float32."""
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-6)):
        for rng, theta in accepted(method, 12):
            values = theta.astype(dtype).vector()
            values[rng.random(len(values)) < 0.3] *= 1e4
            few = adapted(method, n_iter=20, n_samples=20)
            run = infer(theta.astype(dtype).like(values), few, dtype=dtype)
            require_probabilities(run, tolerance)
            if isinstance(method, ExactInference):
                require_exact(run, theta.astype(dtype).like(values), 1e-9 if dtype == "float64" else 2e-3)


def forbidden_labels(method: Any) -> None:
    """Potentials of -inf are legal: marginals stay probabilities, and those of exact methods are 0 there."""
    done = refused = 0
    for scale in (1.0, 1e4):
        for rng, plain in accepted(method, 40, scale):
            theta = forbid(plain, rng, 0.12)
            if theta is None:
                continue
            run = unless_start_is_forbidden(theta, adapted(method, n_iter=20, n_samples=20))
            if run is None:
                refused += 1
                continue
            done += 1
            require_probabilities(run)
            if isinstance(method, ExactInference):
                require_exact(run, theta, 1e-9)
                require((run.marginals.vector()[theta.vector() == -np.inf] == 0).all(), "probability where theta is -inf")
    require(done >= 20 and refused <= done, f"{refused} of {done + refused} possible models are refused")


def unless_start_is_forbidden(theta: Potentials, method: Any) -> Result | None:
    """Infer; only the uniform start of a factorised method can be impossible where the model is not."""
    try:
        return infer(theta, method)
    except InputError:
        if not method.factorised:
            raise
        return None


def impossible(method: Any) -> None:
    """A model of which no configuration is possible is refused by InputError."""
    for _, theta in accepted(method, 3):
        values = theta.vector()
        values[: theta.graph.labels[0]] = -np.inf
        refuses("a variable without a possible label", functools.partial(infer, theta.like(values), method))


def inputs_are_left_alone(method: Any) -> None:
    """Inference changes neither theta nor the observed labels."""
    method = adapted(method, **FEW)
    for _, theta in accepted(method, 3, 2.0):
        before = theta.vector()
        observed = np.full(theta.graph.n_variables, -1)
        observed[0] = 0
        kept = observed.copy()
        for dtype in ("float64", "float32"):
            infer(theta, method, dtype=dtype)
            infer(theta, method, observed=observed, dtype=dtype)
        require((theta.vector() == before).all(), "another theta")
        require((observed == kept).all(), "other observed labels")


def observed_labels(method: Any) -> None:
    """Observed variables come back one-hot; log_partition sums over the completions; observing nothing changes nothing."""
    method = adapted(method, n_iter=5, n_samples=100)
    for rng, theta in accepted(method, 25):
        graph = theta.graph
        labels = np.where(rng.random(graph.n_variables) < 0.4, rng.integers(graph.labels), -1)
        run = infer(theta, method, observed=labels)
        require_probabilities(run)
        for i in np.flatnonzero(labels >= 0):
            close(run.unary[i], (np.arange(graph.labels[i]) == labels[i]).astype(float), 1e-15, "marginal and one-hot")
        if isinstance(method, ExactInference):
            require_exact(run, clamped(theta, labels))
        free = infer(theta, method, observed=np.full(graph.n_variables, -1))
        require((vector(free) == vector(infer(theta, method))).all(), "other numbers when nothing is observed")
        labels = rng.integers(graph.labels)
        run = infer(theta, method, observed=labels)
        error = 0.2 if sampled(method) else 1e-9  # variables of one label are not observed, but known
        close(run.log_partition, theta.score(labels), error, "log_partition of known labels and their score")


def clamped(theta: Potentials, labels: np.ndarray) -> Potentials:
    """Return potentials that forbid all other labels of observed variables."""
    tables = [np.array(table) for table in theta.unary]
    for i, label in enumerate(labels):
        if label >= 0:
            tables[i] = np.where(np.arange(len(tables[i])) == label, tables[i], -np.inf)
    return Potentials(theta.graph, tables, theta.factors)


def single_precision(method: Any) -> None:
    """Results in float32 are those in float64 to 2e-6 (of samples: to 0.1)."""
    method = adapted(method, n_iter=5)
    for _, theta in accepted(method, 15):
        run, low = infer(theta, method), infer(theta, method, dtype="float32")
        close(low.marginals.vector(), run.marginals.vector(), 0.1 if sampled(method) else 2e-6, "marginals")
        error = 10 * run.log_partition_error + 1e-5 * max(1, abs(run.log_partition))
        close(low.log_partition, run.log_partition, error, "values of log_partition")


def smallest_graphs(method: Any) -> None:
    """Graphs of one variable, of one label, and without factors are graphs; a method that names a bound is exact there."""
    done = 0
    alone = (Graph([1]), Graph([4]), Graph([2, 2]), Graph([2, 3, 1]), Graph.grid(1, 1), Graph.chain(1, 3), Graph.chain(2, 1))
    for graph in (*alone, Graph.chain(2, 2)):
        theta = random_potentials(graph, np.random.default_rng(0))
        if not _takes(method, theta):
            continue
        run = infer(theta, adapted(method, n_iter=2))
        require_probabilities(run)
        require(len(run.unary) == graph.n_variables and len(run.factors) == graph.n_factors, "tables are missing")
        if run.bound == "exact" or (graph in alone and run.bound != "none" and not sampled(method)):
            require_exact(run, theta)
        done += 1
    require(done, "all of them are refused")


def gradients(method: Any) -> None:
    """Gradients through the method agree with central differences; without derivatives they are refused."""
    method = adapted(method, n_iter=3, tol=None, eps=0.5)
    for rng, theta in accepted(method, 6, 0.8):
        labels = random_labels(theta.graph, rng)
        if not method.differentiable:
            refuses("a gradient", functools.partial(value_and_gradient, theta, labels, loss="mse", inference=method))
            continue
        for loss in ("univariate_logistic", "clique_quadratic"):
            gradient_is_right(theta, labels, 1e-6, loss=loss, inference=method)
        if isinstance(method, IterativeInference):
            setting = {"loss": "surrogate_likelihood", "inference": method, "gradient": "truncated"}
            gradient_is_right(theta, labels, 1e-6, **setting)


def symmetry(method: Any) -> None:
    """Where the method says ``symmetric``, d mu / d theta is a symmetric matrix at convergence."""
    if not (method.differentiable and method.symmetric):
        return
    for rng, theta in accepted(method, 5, 0.4):
        near = converging(method, n_iter=500, tol=1e-13, eps=0.5)
        u, v = (rng.normal(size=len(theta.vector())) for _ in range(2))
        products = [float(_vjp(near, theta, first) @ second) for first, second in ((u, v), (v, u))]
        close(products[0], products[1], 1e-7 * max(1, abs(products[1])), "u'Jv and v'Ju")


def _vjp(method: Any, theta: Potentials, d_mu: np.ndarray) -> np.ndarray:
    return Truncated().differentiate(method, theta, lambda mu: (mu.vector() @ d_mu, mu.like(d_mu)), True).d_theta.vector()


#: What must hold for every method, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (
    *GENERAL,
    result,
    iterations,
    normalised,
    consistent,
    declared_bound,
    shifts,
    names_of_variables,
    names_of_labels,
    batches,
    huge_potentials,
    forbidden_labels,
    impossible,
    inputs_are_left_alone,
    observed_labels,
    single_precision,
    smallest_graphs,
    gradients,
    symmetry,
)
