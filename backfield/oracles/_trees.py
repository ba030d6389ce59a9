"""Trees as flat arrays, read from and written to LightGBM's text model (numerical splits, no missing values).

Only numbers are read, and children must come after their parents, so walking down a tree that was read from any
file ends.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import inlined, kernel
from backfield.oracles._softmax import over_blocks


class Trees(NamedTuple):
    """Any number of trees; a row goes left where ``x[feature] <= threshold``.

    Attributes
    ----------
    feature, threshold, left, right : (nodes,)
        Splits. Children are counted within their tree: >= 0 a node, below the leaf -1 - child.
    node_ptr : (trees + 1,)
        Where the nodes of each tree start.
    value : (leaves,)
    leaf_ptr : (trees + 1,)
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    node_ptr: np.ndarray
    value: np.ndarray
    leaf_ptr: np.ndarray

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return len(self.node_ptr) - 1

    @classmethod
    def empty(cls) -> Self:
        """No tree."""
        whole, real, start = np.empty(0, dtype=np.int64), np.empty(0), np.zeros(1, dtype=np.int64)
        return cls(whole, real, whole, whole, start, real, start)

    def followed_by(self, other: Trees) -> Trees:
        """Return these trees and then the others."""
        joined = [np.concatenate(pair) for pair in zip(self, other, strict=True)]
        for k in (4, 6):
            joined[k] = np.concatenate([self[k], self[k][-1] + other[k][1:]])
        return Trees(*joined)

    def add(self, x: np.ndarray, first: int, sums: np.ndarray) -> None:
        """Add the values of trees ``first``, ``first`` + 1, ... to ``sums``; tree t to column t modulo their number."""
        _add_trees(x, *self, first, sums)

    def leaves(self, x: np.ndarray, pool: ThreadPoolExecutor | None = None) -> np.ndarray:
        """Return, for each row and tree, the index in ``value`` of its leaf."""
        leaves = np.empty((len(x), self.n_trees), dtype=np.int32)
        over_blocks(lambda rows: _find_leaves(x[rows], *self, leaves[rows]), len(x), pool)
        return leaves


def read_trees(text: str, n_features: int) -> Trees:
    """Read LightGBM's text model."""
    trees = Trees.empty()
    for part in text.partition("end of trees")[0].split("\nTree=")[1:]:
        lines = dict(line.split("=", 1) for line in part.splitlines()[1:] if "=" in line)
        try:
            tree = _read_tree(lines)
        except (KeyError, ValueError) as error:
            raise InputError(f"cannot read tree {trees.n_trees} of the LightGBM model: {error!r}.") from error
        _check_tree(tree, lines, n_features, trees.n_trees)
        trees = trees.followed_by(tree)
    return trees


def _read_tree(lines: dict[str, str]) -> Trees:
    n_leaves = int(lines["num_leaves"])
    value = np.array(lines["leaf_value"].split(), dtype=np.float64)
    whole, real = np.empty(0, dtype=np.int64), np.empty(0)
    feature, threshold, left, right = whole, real, whole, whole
    if n_leaves > 1:
        feature, left, right = (
            np.array(lines[key].split(), dtype=np.int64) for key in ("split_feature", "left_child", "right_child")
        )
        threshold = np.array(lines["threshold"].split(), dtype=np.float64)
    return Trees(feature, threshold, left, right, np.array([0, n_leaves - 1]), value, np.array([0, n_leaves]))


def _check_tree(tree: Trees, lines: dict[str, str], n_features: int, index: int) -> None:
    n_nodes, n_leaves = int(tree.node_ptr[1]), int(tree.leaf_ptr[1])
    sizes = {len(tree.feature), len(tree.threshold), len(tree.left), len(tree.right)}
    good = n_leaves >= 1 and sizes == {n_nodes} and len(tree.value) == n_leaves and int(lines.get("num_cat", 0)) == 0
    good = good and lines.get("is_linear", "0").strip() == "0"
    good = good and bool(np.all((tree.feature >= 0) & (tree.feature < n_features)))
    for child in (tree.left, tree.right):
        inside = np.where(child >= 0, (child > np.arange(len(child))) & (child < n_nodes), -1 - child < n_leaves)
        good = good and bool(np.all(inside))
    if not (good and np.all(np.isfinite(tree.value))):
        raise InputError(f"tree {index} of the LightGBM model is damaged or of an unsupported kind.")


def write_trees(trees: Trees, n_columns: int, n_features: int) -> str:
    """Write LightGBM's text model; tree t adds to column t modulo ``n_columns``."""
    blocks = [_tree_text(trees, t) for t in range(trees.n_trees)]
    names = " ".join(f"Column_{j}" for j in range(n_features))
    header = [
        "tree",
        "version=v4",
        f"num_class={n_columns}",
        f"num_tree_per_iteration={n_columns}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        f"feature_names={names}",
        "feature_infos=" + " ".join(["none"] * n_features),
        "tree_sizes=" + " ".join(str(len(block)) for block in blocks),
    ]
    return "\n".join(header) + "\n\n" + "".join(blocks) + "end of trees\n"


def _tree_text(trees: Trees, t: int) -> str:
    nodes = slice(trees.node_ptr[t], trees.node_ptr[t + 1])
    leaves = slice(trees.leaf_ptr[t], trees.leaf_ptr[t + 1])
    lines = [f"Tree={t}", f"num_leaves={leaves.stop - leaves.start}", "num_cat=0"]
    if nodes.stop > nodes.start:
        lines += [
            "split_feature=" + _words(trees.feature[nodes]),
            "threshold=" + _words(trees.threshold[nodes]),
            "decision_type=" + _words(np.full(nodes.stop - nodes.start, 2)),
            "left_child=" + _words(trees.left[nodes]),
            "right_child=" + _words(trees.right[nodes]),
        ]
    lines += ["leaf_value=" + _words(trees.value[leaves]), "is_linear=0", "shrinkage=1"]
    return "\n".join(lines) + "\n\n\n"


def _words(x: np.ndarray) -> str:
    return " ".join(map(repr, x.tolist()))


@kernel
def _add_trees(x, feature, threshold, left, right, node_ptr, value, leaf_ptr, first, sums):
    """Add the values of trees first, first + 1, ... to sums; tree t belongs to column t modulo their number."""
    n_columns = sums.shape[1]
    for low in range(0, len(x), 2048):
        high = min(low + 2048, len(x))
        for t in range(first, len(node_ptr) - 1):
            for i in range(low, high):
                sums[i, t % n_columns] += value[leaf_ptr[t] + _leaf(x, feature, threshold, left, right, node_ptr, t, i)]


@kernel
def _find_leaves(x, feature, threshold, left, right, node_ptr, value, leaf_ptr, leaves):
    """Write the index of the leaf value of each row in each tree."""
    for t in range(leaves.shape[1]):
        for i in range(len(x)):
            leaves[i, t] = leaf_ptr[t] + _leaf(x, feature, threshold, left, right, node_ptr, t, i)


@inlined
def _leaf(x, feature, threshold, left, right, node_ptr, t, i):
    """The leaf of row i in tree t. Children: a later node of the tree if >= 0, else the leaf -1 - child."""
    at, end = node_ptr[t], node_ptr[t + 1]
    node = at if at < end else -1
    while node >= 0:
        child = left[node] if x[i, feature[node]] <= threshold[node] else right[node]
        node = at + child if child >= 0 else child
    return -1 - node
