"""Exact inference by a junction tree, on any graph whose tables fit into memory.

With cliques C = S + R (separator, own variables) and psi the sum of the tables assigned to C,

    m(x_S) = log sum_{x_R} exp psi(x_C),    q(x_R | x_S) = exp(psi(x_C) - m(x_S))            leaves to roots
    p(x_C) = q(x_R | x_S) p(x_S)                                                             roots to leaves

m goes into the psi of the parent; p of every table is p of its clique with the other variables summed out. Up is in the
log domain, down multiplies and adds probabilities: nothing is divided or subtracted, any finite theta and -inf are
right. Tangents, carried along for the vjp:

    dm = sum_R q dpsi,   dq = q (dpsi - dm),   dp = dq p(x_S) + q dp(x_S)

Cost: O(sum of clique tables), each a few nanoseconds per pass, twice that where memory forces blocks (see
``table_memory``). Memory: the tables of all cliques, or of one block; complex numbers and tangents each double it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.exact.base import DirectInference, check_positive, check_possible, direction, working
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.junction_tree import JunctionTree
from backfield.inference.exact.table_kernels import run_down, run_up
from backfield.inference.exact.table_memory import Program, fit
from backfield.inference.exact.tied_chains import chain_starts, shared_chain_gradient


@dataclass(frozen=True, repr=False)
class Exact(DirectInference, name="exact"):
    """Junction tree on any graph of small enough width.

    Parameters
    ----------
    memory : int
        Bytes that the tables may take; models that need more are refused before anything is computed.
    """

    memory: int = 2 * 2**30

    def __post_init__(self) -> None:
        check_positive(self, "memory")

    @property
    def separable(self) -> bool:
        """Always: what is exact is exact for each part."""
        return True

    def supports(self, theta: Potentials) -> bool:
        """Whether theta holds tables, or one for all edges of chains."""
        return theta.has_tables_only or chain_starts(theta) is not None

    def marginals(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and the marginals, complex where theta is."""
        theta = theta.written_out()
        (values,) = working(theta)
        log_partition, mu = self._run(theta.graph, values, None)
        return log_partition, theta.like(mu.astype(theta.dtype, copy=False))

    def log_partition_and_gradient(self, theta: Potentials) -> tuple[Any, Potentials]:
        """Return log Z and its gradient; chains whose edges share one table need no tree."""
        return shared_chain_gradient(theta) or super().log_partition_and_gradient(theta)

    def vjp(self, theta: Potentials, d_mu: Potentials) -> Potentials:
        """Return the covariance of f applied to ``d_mu``."""
        theta = theta.written_out()
        _, d_theta = self._run(theta.graph, *direction(theta, d_mu))
        return theta.like(d_theta.astype(np.result_type(theta.dtype, d_mu.dtype), copy=False))

    def _run(self, graph: Graph, theta: np.ndarray, d: np.ndarray | None) -> tuple[Any, np.ndarray]:
        """Return log Z, and the marginals or (given a direction d) their tangents."""
        tree = self._tree(graph)
        log_partition, out = theta[tree.constants].sum(), theta
        if tree.cliques:
            program = self._program(graph, tree, theta.itemsize * (1 if d is None else 2))
            values = _array(program.size, theta)
            tangents = np.empty(0, theta.dtype) if d is None else _array(program.size, d)
            log_partition += _up(program, values, tangents)
            check_possible(log_partition)
            _down(program, values, tangents)
            out = (values if d is None else tangents)[: len(theta)].copy()
        check_possible(log_partition)
        out[tree.constants] = 1 if d is None else 0
        return log_partition, out

    def _tree(self, graph: Graph) -> JunctionTree:
        try:
            return graph.compiled("junction_tree", lambda: JunctionTree(graph))
        except TooLargeError as error:
            raise self._refusal(f"a table of at least {_amount(error.entries, 8)}") from error

    def _program(self, graph: Graph, tree: JunctionTree, itemsize: int) -> Program:
        limit = self.memory // itemsize
        table = tree.largest
        text = f"a table of {_amount(table.size, itemsize)} over {len(table.axes)} variables"
        if table.size > limit:
            raise self._refusal(text)
        program = graph.compiled(("junction_tree", limit), lambda: fit(tree, limit).program())
        if program.size > limit:
            raise self._refusal(f"{text} and {_amount(program.size, itemsize)} in all")
        return program

    def _refusal(self, needed: str) -> InputError:
        return InputError(
            f"exact needs {needed}, but memory={self.memory:,} bytes; use 'tree_reweighted' or 'loopy_bp', "
            "or give more memory."
        )


def _amount(entries: int, itemsize: int) -> str:
    return f"{entries:,} entries ({entries * itemsize:,} bytes)"


def _array(size: int, start: np.ndarray) -> np.ndarray:
    out = np.empty(size, start.dtype)
    out[: len(start)] = start
    return out


def _up(program: Program, values: np.ndarray, tangents: np.ndarray) -> Any:
    """Go from leaves to roots and return log Z."""
    for b in range(len(program.block_ptr) - 1):
        run_up(program.code, program.places, *program.block_ptr[b : b + 2], 0, values, tangents)
    return values[program.roots].sum()


def _down(program: Program, values: np.ndarray, tangents: np.ndarray) -> None:
    """Go from roots to leaves; marginals (and their tangents) take the place of theta."""
    values[program.roots] = 1
    if len(tangents):
        tangents[program.roots] = 0
    last = len(program.block_ptr) - 2
    for b in range(last, -1, -1):
        rows = program.block_ptr[b : b + 2]
        if b < last:
            run_up(program.code, program.places, *rows, program.local, values, tangents)
        run_down(program.code, program.places, *rows, values, tangents)
