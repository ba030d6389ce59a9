"""What an objective is: theta, labels -> value and d_theta, to be minimised.

Conventions
-----------
``setting``  how the objective may use inference: the method, the gradient strategy (``None``: the objective's own
             choice), and a seed for those that draw random numbers
``target``   what is known about one example: labels (-1 hidden, or sets), inputs to condition on, weights
value        a sum over variables or cliques
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.gradients import Gradient, Truncated
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Evidence, known_labels
from backfield.graph.labeling import Labeling, one_hot
from backfield.inference.base import Inference
from backfield.kernels.compile import kernel
from backfield.registry import Component


class Seen(NamedTuple):
    """What an objective saw on the way: wrong labels, sweeps of inference, couplings that a cut truncated."""

    wrong: float
    sweeps: int = 0
    truncated: int = 0


class Setting(NamedTuple):
    """The inference that an objective goes through."""

    inference: Inference | None
    gradient: Gradient | None
    seed: int = 0
    watch: list[Seen] | None = None  # gets what objectives see that decode on the way
    memory: int = Truncated.memory  # bytes for the way back, where the objective chooses the strategy itself
    seeds: tuple[int, ...] | None = None  # of each graph of a union, instead of one seed for all


@dataclass(frozen=True, eq=False)
class Target:
    """What is known about an example."""

    labeling: Labeling
    observed: Evidence | None = None
    weights: np.ndarray | None = None  # (n,), or flat as unary tables
    sizes: np.ndarray | None = None  # (n,) where the weights are those of :func:`balanced`
    _known: list[Evidence | None] = field(default_factory=list, init=False, repr=False)

    def n_labelled(self, graph: Graph) -> int:
        """Return the number of variables about which something is known."""
        labeling = self.labeling
        if labeling.soft is not None:
            given = np.add.reduceat(labeling.soft, graph.layout.var_ptr[:-1]) > 0
            return int((given | labeling.known).sum())
        if not labeling.has_sets:
            return int((labeling.labels >= 0).sum())
        count = np.add.reduceat(labeling.allowed.astype(np.int64), graph.layout.var_ptr[:-1])
        return int((count < graph.labels).sum())

    def known(self, graph: Graph) -> Evidence | None:
        """Return observed inputs and known labels together, None where there are none; learners ask at every step."""
        if not self._known:
            if self.observed is None:
                self._known.append(known_labels(graph, self.labeling))
            else:
                self._known.append(self.observed.intersect(self.labeling.allowed))
        return self._known[0]


def balanced(graph: Graph, sizes: np.ndarray, labeling: Labeling) -> np.ndarray:
    """Return weights that make all labels of an example count the same, flat as the unary tables.

    The weighted Hamming loss of [S18] §5.2, theta_d(k) = V_d / (K V_k) for sizes V_d, V_k = sum_d V_d q_d(k) and the K
    labels that occur, times the number of labelled variables: their mean is 1, as without weights.
    """
    if graph.n_labels is None:
        raise InputError("balanced weights need variables with the same labels; these have different label counts.")
    share = one_hot(graph, labeling.labels)[0] + (0.0 if labeling.soft is None else labeling.soft)
    share = share.reshape(-1, graph.n_labels)
    volume = sizes @ share
    inverse = np.divide(1.0, volume, out=np.zeros_like(volume), where=volume > 0)
    labelled = float((share.sum(axis=1) > 0).sum())
    return (labelled / max(1, int((volume > 0).sum())) * np.outer(sizes, inverse)).reshape(-1)


class Objective(Component):
    """A function of theta with its gradient."""

    room: ClassVar[str] = "objectives"
    #: Uses ``setting.inference``.
    needs_inference: ClassVar[bool] = True
    #: The gradient is that of the value; L-BFGS and difference checks need it.
    integrable: ClassVar[bool] = True
    #: Can be differentiated twice.
    smooth: ClassVar[bool] = True
    #: Takes weights per variable or label.
    weighted: ClassVar[bool] = False
    #: Takes target probabilities.
    soft_targets: ClassVar[bool] = False
    #: The value is one number per example, not a sum over variables.
    per_example: ClassVar[bool] = False
    #: Does not differentiate through the marginals of inference.
    own_gradient: ClassVar[bool] = True

    def value_and_dtheta(self, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
        """Return the value at ``theta`` and its gradient."""
        raise NotImplementedError

    def supports(self, theta: Potentials, setting: Setting) -> bool:
        """Whether :meth:`value_and_dtheta` takes the groups of ``theta`` as they are; see :func:`evaluate`."""
        return theta.has_tables_only

    def separable(self, theta: Potentials, setting: Setting) -> bool:
        """Whether the value of several models such as ``theta``, as one disconnected graph, is the sum of theirs.

        Examples of such objectives are evaluated many at a time; those of others, as by default, one after the other.
        """
        return False

    def merges(self, target: Target) -> bool:
        """Whether an example with this target is evaluated with others, where :meth:`separable` says so."""
        return True

    def check(self, setting: Setting) -> None:
        """Refuse settings that make no sense with this objective, in one sentence."""
        if self.needs_inference and setting.inference is None:
            raise InputError(f"{self.name} needs inference=, such as 'tree_reweighted(n_iter=5)'.")
        if self.own_gradient and setting.gradient is not None and setting.gradient.at_convergence:
            raise InputError(
                f"{self.name} computes its own gradient, so {setting.gradient.name} does not apply; leave out gradient=."
            )

    def admit(self, target: Target) -> None:
        """Refuse targets that the objective cannot use; callers ask this."""
        if target.labeling.soft is not None and not self.soft_targets:
            raise InputError(f"{self.name} takes labels, not probabilities of labels; marginal_perturb_and_map takes them.")
        self.check_target(target)

    def check_target(self, target: Target) -> None:
        """Refuse what the objective cannot use; each says so for itself."""
        if target.weights is not None and not self.weighted:
            raise InputError(f"{self.name} takes no weights per variable; use a marginal loss or pseudolikelihood.")

    def check_labels(self, seen: np.ndarray) -> None:
        """Refuse a data set whose labels, of which ``seen`` occur, teach the objective nothing."""


def refuse_impossible(score: Any) -> None:
    """Refuse known labels whose potentials add up to -inf."""
    if np.real(score) == -np.inf:
        raise InputError("the known labels together have probability zero (-inf).")


def evaluate(objective: Objective, theta: Potentials, target: Target, setting: Setting) -> tuple[Any, Potentials]:
    """Return value and gradient in the kinds of theta; groups are written out where the objective does not support them."""
    takes = objective.supports(theta, setting)
    if not takes:
        theta.refuse_kernels(f"{objective.name}{_way(objective, theta, setting)}")
    value, d_theta = objective.value_and_dtheta(theta if takes else theta.written_out(), target, setting)
    return value, theta.contract(d_theta)


def _way(objective: Objective, theta: Potentials, setting: Setting) -> str:
    """Return through what the objective is computed, for messages."""
    if setting.inference is None or not objective.needs_inference:
        return ""
    words = f" through {setting.inference.name}"
    if setting.gradient is None or not setting.inference.supports(theta):
        return words
    return f"{words} with the gradient {setting.gradient.name}"


def pieces(
    theta: np.ndarray, ptr: np.ndarray, chosen: np.ndarray, entries: np.ndarray, w: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Return sum w (A - theta(x)) over the chosen pieces with labels at ``entries``, and its gradient."""
    d_theta = np.zeros_like(theta)
    if len(chosen) == 0:
        return 0.0, d_theta
    sizes = np.diff(ptr)
    top = np.maximum.reduceat(theta.real, ptr[:-1])
    weights = np.exp(theta - np.repeat(top, sizes))
    total = np.add.reduceat(weights, ptr[:-1])
    every = np.zeros(len(sizes))
    every[chosen] = w
    d_theta += np.repeat(every, sizes) * weights / np.repeat(total, sizes)
    d_theta[entries] -= w
    return (w * ((top + np.log(total))[chosen] - theta[entries])).sum(), d_theta


def is_complete(target: Target) -> bool:
    """Whether one label is known of every variable, and nothing is conditioned on: clamping leaves f(labels)."""
    return target.observed is None and bool(target.labeling.known.all())


def reduced_target(graph: Graph, target: Target) -> Target:
    """Return what is known about the variables that the observed inputs leave free, in the reduced graph."""
    if target.observed is None:
        return target
    restriction = target.observed.restriction
    assert restriction.graph is not None
    target.known(graph)  # refuses labels that contradict the inputs
    kept, places = restriction.kept_variables, restriction.target[: len(target.observed.allowed)]
    labels = target.labeling.labels[kept]
    new = places[graph.layout.var_ptr[kept] + np.maximum(labels, 0)] - restriction.graph.layout.var_ptr[:-1]
    entries = np.flatnonzero((places >= 0) & (places < restriction.n_unary))
    soft = None if target.labeling.soft is None else target.labeling.soft[entries]
    labeling = Labeling(np.where(labels < 0, -1, new), target.labeling.allowed[entries], target.labeling.has_sets, soft)
    weights = target.weights
    if weights is not None:
        weights = weights[kept] if len(weights) == graph.n_variables else weights[entries]
    return Target(labeling, None, weights)


def count_errors(decoded: np.ndarray, target: Target) -> float:
    """Return the number of variables with one known label that ``decoded`` gets wrong: N_E of [K05] §7.2."""
    known = target.labeling.known
    return float((decoded[known] != target.labeling.labels[known]).sum())


def count_wrong_marginals(mu: Potentials, target: Target) -> float:
    """Return the number of variables whose known label is not their most probable one."""
    if mu.graph.n_labels is not None and mu.dtype.kind == "f":
        return float(_count_wrong(mu.unary, target.labeling.labels))
    return count_errors(argmax_labels(mu), target)


@kernel
def _count_wrong(mu, labels):
    wrong = 0
    for i in range(len(labels)):
        best = 0
        for a in range(1, mu.shape[1]):
            if mu[i, a] > mu[i, best]:
                best = a
        wrong += labels[i] >= 0 and labels[i] != best
    return wrong


def argmax_labels(mu: Potentials) -> np.ndarray:
    """Return the most probable label of each variable (MPM)."""
    if mu.graph.n_labels == 2:  # numpy's argmax is slow over short rows
        return (mu.unary_flat.real[1::2] > mu.unary_flat.real[::2]).astype(np.int64)
    if mu.graph.n_labels is not None:
        return mu.unary.real.argmax(axis=1)
    return np.array([int(row.real.argmax()) for row in mu.unary])
