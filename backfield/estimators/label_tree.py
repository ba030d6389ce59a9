"""Exact sums over K binary labels with pairwise couplings, for all rows of a table in one call.

    score(y) = sum_k y_k u_k + sum_(k, l) y_k y_l c_kl,       p(y) = exp(score(y)) / Z

Couplings are the same in all rows, u differs. Labels are put into the cliques of a junction tree (all labels into one where
couplings join all pairs); a clique holds one number per row and state. Two passes over the tree, vectorised over rows, give
log Z and the marginals of labels and pairs, one pass with maxima the best labels. Cost and memory: rows times the states of
the cliques, 2^width at the most; rows are taken in runs that bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backfield.errors import InputError

#: Labels of a clique at the most: it has 2^WIDEST states.
WIDEST = 16
#: Numbers of a clique that are held at a time.
_HELD = 2**21
#: Added to a state that contradicts what is known.
_NEVER = -1e8


class Sums(NamedTuple):
    """log Z (n,), P(y_k = 1) (n, K), P(y_k = y_l = 1) (n, pairs)."""

    log_z: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray


@dataclass(frozen=True, eq=False)
class _Clique:
    """Some labels, which of them and of their couplings are counted here, and how the states meet those of the parent."""

    labels: np.ndarray
    bits: np.ndarray  # (states, labels) zeros and ones
    own_labels: np.ndarray  # labels whose u is counted here
    own_bits: np.ndarray  # (states, own labels)
    own_pairs: np.ndarray  # numbers of the couplings that are counted here
    pair_bits: np.ndarray  # (states, own pairs)
    parent: int
    to_separator: np.ndarray  # state -> state of the labels shared with the parent
    from_parent: np.ndarray  # state of the parent -> the same


class LabelTree:
    """K labels and the pairs that are coupled."""

    def __init__(self, n_labels: int, pairs: np.ndarray) -> None:
        self.n_labels, self.pairs = n_labels, np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        nodes = _elimination(n_labels, self.pairs)
        self.width = _width(nodes)
        if self.width > WIDEST:
            raise InputError(
                f"exact sums over these {len(self.pairs)} pairs of {n_labels} labels need tables of 2^{self.width} entries, "
                f"more than 2^{WIDEST}; couple fewer pairs."
            )
        self.cliques = _joined(_contracted(nodes), self.pairs)  # parents before children

    def sums(self, u: np.ndarray, couplings: np.ndarray, known: np.ndarray | None = None) -> Sums:
        """Return log Z and marginals of each row of u (n, K); ``known`` (n, K) holds labels that are given, -1 = free."""
        found = [self._sums(u[run], couplings, None if known is None else known[run]) for run in self._runs(len(u))]
        return Sums(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def best(self, u: np.ndarray, couplings: np.ndarray) -> np.ndarray:
        """Return the labels of the highest score of each row."""
        return np.concatenate([self._best(u[run], couplings) for run in self._runs(len(u))])

    def _runs(self, count: int) -> Iterator[slice]:
        step = max(1, _HELD >> self.width)
        for first in range(0, max(count, 1), step):
            yield slice(first, first + step)

    def _scores(self, u: np.ndarray, couplings: np.ndarray, known: np.ndarray | None) -> list[np.ndarray]:
        out = []
        for clique in self.cliques:
            phi = u[:, clique.own_labels] @ clique.own_bits.T + clique.pair_bits @ couplings[clique.own_pairs]
            if known is not None:
                given = known[:, clique.own_labels]
                phi += _NEVER * ((given == 0) @ clique.own_bits.T + (given == 1) @ (1 - clique.own_bits.T))
            out.append(phi)
        return out

    def _collect(self, phi: list[np.ndarray], how: str) -> list[np.ndarray]:
        """Send messages towards the roots, into ``phi``; return those that left each clique."""
        messages = [np.empty(0)] * len(phi)
        for number in range(len(phi) - 1, -1, -1):
            clique = self.cliques[number]
            messages[number] = _reduced(phi[number], clique.to_separator, how)
            if clique.parent >= 0:
                phi[clique.parent] += messages[number][:, clique.from_parent]
        return messages

    def _sums(self, u: np.ndarray, couplings: np.ndarray, known: np.ndarray | None) -> Sums:
        phi = self._scores(u, couplings, known)
        messages = self._collect(phi, "log_sum")
        log_z = np.zeros(len(u))
        labels, pairs = np.empty((len(u), self.n_labels)), np.empty((len(u), len(self.pairs)))
        beliefs: list[np.ndarray] = []
        for clique, scores, message in zip(self.cliques, phi, messages, strict=True):
            belief = np.exp(scores - message[:, clique.to_separator])
            if clique.parent >= 0:
                outer = _reduced(beliefs[clique.parent], clique.from_parent, "sum")
                belief *= outer[:, clique.to_separator]
            else:
                log_z += message[:, 0]
            beliefs.append(belief)
            labels[:, clique.own_labels] = belief @ clique.own_bits
            pairs[:, clique.own_pairs] = belief @ clique.pair_bits
        return Sums(log_z, labels, pairs)

    def _best(self, u: np.ndarray, couplings: np.ndarray) -> np.ndarray:
        phi = self._scores(u, couplings, None)
        self._collect(phi, "max")
        labels = np.zeros((len(u), self.n_labels), dtype=np.int64)
        states: list[np.ndarray] = []
        for clique, scores in zip(self.cliques, phi, strict=True):
            if clique.parent >= 0:
                chosen = clique.from_parent[states[clique.parent]]
                scores = np.where(clique.to_separator == chosen[:, None], scores, -np.inf)
            states.append(scores.argmax(axis=1))
            labels[:, clique.labels] = clique.bits[states[-1]]
        return labels


def _reduced(values: np.ndarray, states: np.ndarray, how: str) -> np.ndarray:
    """Return sums, log sums or maxima of values (n, states) over the states of each state of a separator."""
    order = np.argsort(states, kind="stable")
    grouped = values[:, order].reshape(len(values), states.max() + 1, -1)
    if how == "sum":
        return grouped.sum(axis=2)
    top = grouped.max(axis=2)
    return top if how == "max" else top + np.log(np.exp(grouped - top[:, :, None]).sum(axis=2))


def strongest_pairs(information: np.ndarray, width: int) -> np.ndarray:
    """Return pairs of labels to couple: a tree of the most informative ones, and more while cliques stay within ``width``.

    ``information`` (K, K) is the mutual information of labels, or any measure of how much they have to do with each other.
    """
    count = len(information)
    if count <= width:
        return np.stack(np.triu_indices(count, 1), axis=1)
    rows, columns = np.triu_indices(count, 1)
    ranked = np.argsort(-information[rows, columns], kind="stable")
    group, chosen, rest = np.arange(count), [], []
    for pair in ranked:
        a, b = int(rows[pair]), int(columns[pair])
        if group[a] == group[b]:
            rest.append((a, b))
            continue
        chosen.append((a, b))
        group[group == group[b]] = group[a]
    for pair in rest[: 3 * count]:
        if count <= 64 and _width(_elimination(count, np.array([*chosen, pair]))) <= width:
            chosen.append(pair)
    return np.array(sorted(chosen), dtype=np.int64).reshape(-1, 2)


class _Node(NamedTuple):
    """A clique of the tree: its labels, and the number of its parent."""

    labels: list[int]
    parent: int


def _elimination(count: int, pairs: np.ndarray) -> list[_Node]:
    """Return the cliques that eliminating labels makes, least neighbours first; a parent follows its children."""
    near: list[set[int]] = [set() for _ in range(count)]
    for a, b in pairs.tolist():
        near[a].add(b)
        near[b].add(a)
    left, order, cliques = set(range(count)), [], []
    while left:
        label = min(left, key=lambda k: (len(near[k]), k))
        around = near[label]
        for k in around:
            near[k] |= around - {k}
            near[k].discard(label)
        left.discard(label)
        order.append(label)
        cliques.append(sorted({label, *around}))
    at = {label: number for number, label in enumerate(order)}
    later = [[at[k] for k in clique if at[k] > number] for number, clique in enumerate(cliques)]
    return [_Node(clique, min(others, default=-1)) for clique, others in zip(cliques, later, strict=True)]


def _width(nodes: list[_Node]) -> int:
    return max(len(node.labels) for node in nodes)


def _contracted(nodes: list[_Node]) -> list[_Node]:
    """Return the tree without cliques that lie inside a child, parents first."""
    parent, instead = [node.parent for node in nodes], list(range(len(nodes)))
    for number, node in enumerate(nodes):
        while instead[number] == number and (above := parent[number]) >= 0:
            if instead[above] != above or not set(nodes[above].labels) <= set(node.labels):
                break
            instead[above], parent[number] = number, parent[above]
    kept = [number for number in range(len(nodes)) if instead[number] == number]
    # A clique that took its parent's place may come before children of that parent: roots first, by depth.
    parents = {number: -1 if parent[number] < 0 else instead[parent[number]] for number in kept}
    order = sorted(kept, key=lambda number: (_depth(number, parents), -number))
    place = {number: k for k, number in enumerate(order)}
    return [_Node(nodes[number].labels, place.get(parents[number], -1)) for number in order]


def _depth(number: int, above: dict[int, int]) -> int:
    steps = 0
    while above[number] >= 0:
        number, steps = above[number], steps + 1
    return steps


def _joined(nodes: list[_Node], pairs: np.ndarray) -> list[_Clique]:
    """Return the cliques with what each of them counts."""
    out: list[_Clique] = []
    counted = np.zeros(len(pairs), dtype=bool)
    for labels, parent in nodes:
        shared = sorted(set(labels) & set(nodes[parent].labels)) if parent >= 0 else []
        out.append(_clique(labels, shared, parent, out, pairs, counted))
    return out


def _clique(
    labels: list[int], shared: list[int], parent: int, before: Sequence[_Clique], pairs: np.ndarray, counted: np.ndarray
) -> _Clique:
    own_labels = [k for k in labels if k not in shared]
    inside = np.isin(pairs, labels).all(axis=1) & ~counted
    counted |= inside
    own_pairs, bits = np.flatnonzero(inside), _bits(len(labels))
    place = {label: at for at, label in enumerate(labels)}
    ends = [[place[int(k)] for k in pair] for pair in pairs[own_pairs]]
    pair_bits = np.stack([bits[:, a] * bits[:, b] for a, b in ends], axis=1) if ends else np.zeros((len(bits), 0))
    to_separator = _states(bits[:, [place[k] for k in shared]])
    from_parent = np.zeros(1, dtype=np.int64)
    if parent >= 0:
        at = {int(label): k for k, label in enumerate(before[parent].labels)}
        from_parent = _states(before[parent].bits[:, [at[k] for k in shared]])
    return _Clique(
        np.array(labels), bits, np.array(own_labels), bits[:, [place[k] for k in own_labels]], own_pairs, pair_bits,
        parent, to_separator, from_parent,
    )  # fmt: skip


def _bits(count: int) -> np.ndarray:
    return ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _states(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.int64) << np.arange(bits.shape[1])).sum(axis=1)
