"""Weighted mini-buckets: an upper bound of log Z for any order, any tables, any parameters [LI11].

A bucket of variable v whose joint table would be too large is split: v gets replicas, each with some of the factors and a
weight, and by Hölder's inequality

    sum_v prod_r f_r(v)  <=  prod_r ( sum_v f_r(v)^(1 / w_r) )^(w_r),      sum_r w_r = 1, w_r > 0.

So the bound is the weighted elimination (``exact.weighted``) of the graph in which variables are split. It holds for all
weights, and for all shifts delta_r(x_v) of the replicas' unary tables that sum to zero; its derivatives are marginals of
the replicas and conditional entropies:

    d bound / d delta_r(x) = p_r(x),        d bound / d w_r = H(x_v^r | later variables).

L-BFGS moves both. Cost per step: a few passes over the tables; memory: the tables.

[LI11] Liu and Ihler, Bounding the partition function using Hölder's inequality, ICML 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.inference.auto.descent import minimise
from backfield.inference.exact.elimination import Elimination
from backfield.inference.exact.weighted import WeightedElimination


class Split:
    """A graph whose variables are split until no bucket needs a table of more than ``limit`` entries.

    Parameters
    ----------
    model : Graph
    order : sequence of int
        The order of elimination.
    limit : int
    finer : Split, optional
        A split with smaller tables; what it holds together stays together where that is possible, so its parameters
        are a start for this one.

    Attributes
    ----------
    graph : Graph
        Its variables are the replicas, its factors those of the model, in order.
    variable : ndarray
        The variable of each replica.
    slot_replica : ndarray
        The replica at each slot of the graph's factors.
    """

    def __init__(self, model: Graph, order: Sequence[int], limit: int, finer: Split | None = None) -> None:
        layout = model.layout
        labels = model.labels.tolist()
        ptr, scope = layout.scope_ptr.tolist(), layout.scope.tolist()
        rank = np.empty(model.n_variables, dtype=np.int64)
        rank[np.asarray(order)] = np.arange(model.n_variables)
        ranks = rank.tolist()
        buckets: list[list[tuple[frozenset[int], list[int]]]] = [[] for _ in labels]
        for c in range(model.n_factors):
            around = frozenset(scope[ptr[c] : ptr[c + 1]])
            buckets[min(around, key=ranks.__getitem__)].append((around, [c]))
        variable: list[int] = []
        slot_replica = np.zeros(model.n_slots, dtype=np.int64)
        separators: list[frozenset[int]] = []
        sizes: list[int] = []
        place = {(c, scope[k]): k for c in range(model.n_factors) for k in range(ptr[c], ptr[c + 1])}
        members: list[list[int]] = []
        before = None if finer is None else finer.slot_replica.tolist()
        for v in order:
            together = _together(buckets[v], v, before, place)
            for around, inside in _mini_buckets(buckets[v], together, v, labels, limit):
                replica = len(variable)
                variable.append(v)
                for c in inside:
                    if (c, v) in place:
                        slot_replica[place[c, v]] = replica
                left = around - {v}
                if left:
                    buckets[min(left, key=ranks.__getitem__)].append((left, inside))
                separators.append(left)
                members.append(inside)
                sizes.append(math.prod(labels[u] for u in left) * labels[v])
            buckets[v] = []
        self.variable = np.array(variable, dtype=np.int64)
        self.slot_replica: np.ndarray = slot_replica
        self.graph = Graph._from_arrays(model.labels[self.variable], layout.scope_ptr, slot_replica)
        near = _replicas_around(separators, members, place, slot_replica)
        ends, flat = np.cumsum([len(row) for row in near]), np.array([u for row in near for u in row], dtype=np.int64)
        self.order = Elimination(np.arange(len(variable)), ends, flat, sum(sizes), max(sizes))
        self.count = np.bincount(self.variable, minlength=model.n_variables)

    @property
    def is_exact(self) -> bool:
        """Whether no variable had to be split."""
        return len(self.variable) == len(self.count)


def _together(
    bucket: list[tuple[frozenset[int], list[int]]],
    v: int,
    before: list[int] | None,
    place: dict[tuple[int, int], int],
) -> list[int]:
    """Return for each part of a bucket the replica of v at which a finer split held it; parts without one stand alone."""
    if before is None:
        return list(range(len(bucket)))
    return [
        min((before[place[c, v]] for c in inside if (c, v) in place), default=-1 - k) for k, (_, inside) in enumerate(bucket)
    ]


def _mini_buckets(
    bucket: list[tuple[frozenset[int], list[int]]], together: list[int], v: int, labels: list[int], limit: int
) -> list[tuple[frozenset[int], list[int]]]:
    """Join the parts of a bucket, first those held together, while joint tables have at most ``limit`` entries."""
    groups: dict[int, list[tuple[frozenset[int], list[int]]]] = {}
    for key, part in zip(together, bucket, strict=True):
        groups.setdefault(key, []).append(part)
    joined = [part for group in groups.values() for part in _first_fit(group, labels, limit)]
    return _first_fit(joined, labels, limit) or [(frozenset([v]), [])]


def _first_fit(
    parts: list[tuple[frozenset[int], list[int]]], labels: list[int], limit: int
) -> list[tuple[frozenset[int], list[int]]]:
    """Put each part, the largest first, to the first others with which its table has at most ``limit`` entries."""
    out: list[tuple[frozenset[int], list[int]]] = []
    for around, inside in sorted(parts, key=lambda part: -len(part[0])):
        for k, (other, joined) in enumerate(out):
            union = other | around
            if len(union) == len(other) or math.prod(labels[u] for u in union) <= limit:
                out[k] = union, joined + inside
                break
        else:
            out.append((around, list(inside)))
    return out


def _replicas_around(
    separators: list[frozenset[int]], members: list[list[int]], place: dict[tuple[int, int], int], slot: np.ndarray
) -> list[list[int]]:
    """Return the replicas in each separator: those at which the factors of the mini-bucket stand."""
    replica = slot.tolist()
    return [
        sorted({replica[place[c, u]] for c in inside for u in around if (c, u) in place})
        for around, inside in zip(separators, members, strict=True)
    ]


class MiniBucketBound:
    """The bound of one split, and the parameters that tighten it.

    Parameters
    ----------
    theta : Potentials
    split : Split
    memory : int
    start : MiniBucketBound, optional
        The bound of a finer split, whose parameters are taken over: each slot of a factor brings its share of the shift
        and of the weight of the replica that it stood at.
    """

    def __init__(self, theta: Potentials, split: Split, memory: int, start: MiniBucketBound | None = None) -> None:
        self.split = split
        self.elimination = WeightedElimination(split.graph, split.order, memory=memory)
        layout, replicas = theta.graph.layout, split.graph.layout
        self.labels = split.graph.labels
        self.owner = np.repeat(np.arange(len(split.variable)), self.labels)  # of entries
        first = layout.var_ptr[split.variable]
        self.entry = np.repeat(first - replicas.var_ptr[:-1], self.labels) + np.arange(len(self.owner))  # in theta.unary
        self.unary = theta.unary_flat[self.entry]
        self.tables = theta.factors_flat
        self.n_entries = len(theta.unary_flat)
        self.free = split.count[split.variable] > 1  # replicas
        slots = np.repeat(split.slot_replica, np.diff(layout.msg_ptr))
        within = np.arange(int(layout.msg_ptr[-1])) - np.repeat(layout.msg_ptr[:-1], np.diff(layout.msg_ptr))
        self.message_entry = replicas.var_ptr[slots] + within
        self.slots_of = np.bincount(split.slot_replica, minlength=len(split.variable))
        self.delta = np.zeros(len(self.owner))
        self.log_weight = np.zeros(len(split.variable))
        if start is not None:
            shifts, weights = start.shares()
            np.add.at(self.delta, self.message_entry, shifts)
            total = np.bincount(split.slot_replica, weights=weights, minlength=len(split.variable))
            self.log_weight = np.log(np.maximum(total, 1e-9))
        self.value = self.evaluate(self.delta, self.log_weight)[0]

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what each slot has of the shift (flat, as messages) and of the weight of its replica."""
        slots = np.maximum(self.slots_of, 1)
        weights = self._weights(self.log_weight) / slots
        return (self.delta / slots[self.owner])[self.message_entry], weights[self.split.slot_replica]

    def _weights(self, log_weight: np.ndarray) -> np.ndarray:
        raw = np.exp(np.clip(log_weight, -30, 30))
        return raw / np.bincount(self.split.variable, weights=raw)[self.split.variable]

    def _balanced(self, delta: np.ndarray) -> np.ndarray:
        """Take away the mean over the replicas of a variable."""
        mean = np.bincount(self.entry, weights=delta, minlength=self.n_entries) / self._count_of_entries
        return np.where(self.free[self.owner], delta - mean[self.entry], 0.0)

    @property
    def _count_of_entries(self) -> np.ndarray:
        return np.maximum(np.bincount(self.entry, minlength=self.n_entries), 1)

    def evaluate(self, delta: np.ndarray, log_weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the bound and its gradients."""
        weights = self._weights(log_weight)
        unary = self.unary * weights[self.owner] + self._balanced(delta)
        forward = self.elimination.forward(np.concatenate([unary, self.tables]), weights)
        mu, entropy = forward.marginals()
        p = mu[: len(unary)]
        # d/dw of the bound itself, and of the share w theta of the unary tables
        possible = np.where(p > 0, self.unary, 0.0)
        slope = entropy + np.bincount(self.owner, weights=p * possible, minlength=len(weights))
        mean = np.bincount(self.split.variable, weights=weights * slope)[self.split.variable]
        return forward.value, self._balanced(p), weights * (slope - mean) * self.free

    def tighten(self, deadline: float) -> None:
        """Lower the bound by L-BFGS until ``deadline``; the parameters stay at the best point."""
        n = len(self.delta)

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_delta, d_weight = self.evaluate(x[:n], x[n:])
            return value, np.concatenate([d_delta, d_weight])

        x = minimise(value_and_gradient, np.concatenate([self.delta, self.log_weight]), deadline)
        self.delta, self.log_weight = self._balanced(x[:n]), x[n:]
        self.value = min(self.value, self.evaluate(self.delta, self.log_weight)[0])
