"""Factor groups in tensors: what the layer takes instead of factor tables.

The numbers of all groups of an example (tables; of tied groups their tables, and their scales where these have a gradient)
are joined to one vector by PyTorch, which takes gradients back to the tensors it came from. ``kinds``, one group of numpy
arrays for each, say how the vector is read: ``Group.like`` for potentials, ``Group.vector`` for gradients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from backfield.errors import InputError
from backfield.graph import FactorGroup, Graph, Kernel, Potentials, Tied
from backfield.graph.groups import Group, Tables, bound
from backfield.graph.kernel_groups import bound_kernel

Kinds = tuple[Group, ...]


def are_groups(factors: Any) -> bool:
    """Whether factors are given by groups: a tied one or a kernel, or a list for all groups with one of these in it."""
    several = isinstance(factors, list | tuple) and any(isinstance(each, Tied | Kernel) for each in factors)
    return isinstance(factors, Tied | Kernel) or several


def are_kernels(factors: Any) -> bool:
    """Whether factors are kernels over all pairs alone, beside which edges of the graph have nothing to say."""
    groups = factors if isinstance(factors, list | tuple) else [factors]
    return len(groups) > 0 and all(isinstance(each, Kernel) for each in groups)


def read_groups(graph: Graph, factors: Any, n_examples: int | None) -> tuple[torch.Tensor, list[Kinds | None]]:
    """Return the numbers of the groups, (M,) or (n_examples, M), and how each example is read."""
    given = [factors] if isinstance(factors, Tied | Kernel) else list(factors)
    groups = [each for each in given if not isinstance(each, Kernel)]
    if len(groups) != len(graph.groups) and (groups or graph.n_factors):
        names = ", ".join(f"{span.name or 'factors'} ({span.n_factors})" for span in graph.groups)
        raise InputError(
            f"factors must hold {len(graph.groups)} groups, those of the graph: {names}; received {len(groups)}."
        )
    spans = zip(groups, graph.groups if groups else (), strict=True)
    read: list[Any] = [_Reader(group, span, k, n_examples) for k, (group, span) in enumerate(spans)]
    read += [_KernelReader(each, graph, k, n_examples) for k, each in enumerate(given) if isinstance(each, Kernel)]
    kinds: list[Kinds | None] = [tuple(each.kind(k) for each in read) for k in range(n_examples or 1)]
    parts = [part for each in read for part in each.parts()]
    dtype = next((part.dtype for part in parts if part.requires_grad), parts[0].dtype)
    return torch.cat([part.to(dtype) for part in parts], dim=-1), kinds


class _Reader:
    """The tensors of one group, shared by the examples of a batch or one for each."""

    def __init__(self, group: Any, span: FactorGroup, number: int, n_examples: int | None) -> None:
        self.span, self.number, self.n_examples = span, number, n_examples
        self.what = f"factors[{number}]"
        if span.shape is None:
            raise InputError(f"{self.what}: the factors of this group have tables of different shapes; pass all as tables.")
        self.tied = isinstance(group, Tied)
        self.tables = _floats(group.tables if self.tied else group, f"{self.what}.tables" if self.tied else self.what)
        scales = group.scales if self.tied else None
        self.scales = None if scales is None else _floats(scales, f"{self.what}.scales")
        self.fixed = self.scales is None or bool(group.fixed_scales) or not self.scales.requires_grad
        if not self.tied and self._example(self.tables, len(span.shape) + 1).shape != (span.n_factors, *span.shape):
            raise InputError(
                f"{self.what} must have shape {(span.n_factors, *span.shape)}, received {tuple(self.tables.shape)}."
            )

    def kind(self, example: int) -> Group:
        """Return the group of one example, checked."""
        assert self.span.shape is not None
        n_axes = len(self.span.shape)
        tables = _array(self._example(self.tables, n_axes + 1, example))
        if not self.tied:
            return Tables(tables.reshape(-1), self.span.n_factors)
        scales = None if self.scales is None else _array(self._example(self.scales, 2, example))
        return bound(Tied(tables, scales, self.fixed), self.span, self.number)

    def parts(self) -> list[torch.Tensor]:
        """Return the numbers that have a gradient: (size,), or (n_examples, size)."""
        assert self.span.shape is not None
        parts = [self._rows(self.tables, len(self.span.shape) + 1)]
        if self.scales is not None and not self.fixed:
            parts.append(self._rows(self.scales, 2))
        return parts

    def _example(self, tensor: torch.Tensor, n_axes: int, example: int = 0) -> torch.Tensor:
        """Return what an example has of a tensor, which has one axis more than ``n_axes`` where each has its own."""
        if self.n_examples is None or tensor.ndim <= n_axes:
            return tensor
        if tensor.shape[0] != self.n_examples:
            raise InputError(f"{self.what} has numbers for {tensor.shape[0]} examples; the batch has {self.n_examples}.")
        return tensor[example]

    def _rows(self, tensor: torch.Tensor, n_axes: int) -> torch.Tensor:
        if self.n_examples is None:
            return tensor.reshape(-1)
        if tensor.ndim > n_axes:
            return tensor.reshape(self.n_examples, -1)
        return tensor.reshape(1, -1).expand(self.n_examples, -1)


class _KernelReader:
    """The tensors of a kernel: parameters that all examples share, and features of all or of each."""

    def __init__(self, group: Kernel, graph: Graph, number: int, n_examples: int | None) -> None:
        self.group, self.graph, self.number, self.n_examples = group, graph, number, n_examples
        numbers = (group.weight, group.compatibility, group.bandwidths)
        self.weight, self.compatibility, self.bandwidths = (_as_tensor(each) for each in numbers)
        self.fixed = bool(group.fixed_bandwidths) or not self.bandwidths.requires_grad
        given = group.features
        self.features = np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given)
        if self.features.ndim == 3 and (n_examples is None or len(self.features) != n_examples):
            raise InputError(f"factors[{number}] has features of {len(self.features)} examples; the batch has {n_examples}.")

    def kind(self, example: int) -> Group:
        """Return the kernel of one example, checked."""
        values = dataclasses.replace(
            self.group,
            features=self.features[example] if self.features.ndim == 3 else self.features,
            weight=_array(self.weight),
            compatibility=_array(self.compatibility),
            bandwidths=_array(self.bandwidths),
            fixed_bandwidths=self.fixed,
        )
        return bound_kernel(values, self.graph, self.number)

    def parts(self) -> list[torch.Tensor]:
        """Return the numbers that have a gradient, in the order of ``Kernel.vector``."""
        c = self.compatibility
        if c.ndim == 2:
            rows, columns = np.triu_indices(len(c))
            c = c[torch.from_numpy(rows), torch.from_numpy(columns)]
        parts = [self.weight.reshape(-1), c.reshape(-1), *([] if self.fixed else [self.bandwidths.reshape(-1)])]
        if self.n_examples is None:
            return parts
        return [part.reshape(1, -1).expand(self.n_examples, -1) for part in parts]


def _as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value, dtype=np.float64))


def with_numbers(kinds: Kinds, vector: np.ndarray) -> list[Group]:
    """Return groups of these kinds with the numbers of a vector."""
    cuts = np.cumsum([len(kind.vector()) for kind in kinds])[:-1]
    return [kind.like(part).astype(vector.dtype) for kind, part in zip(kinds, np.split(vector, cuts), strict=True)]


def group_numbers(table: Potentials) -> np.ndarray:
    """Return the numbers of all groups in one vector."""
    return table.factors_flat if table.has_tables_only else np.concatenate([group.vector() for group in table.groups])


def scaled(table: Potentials, scale: Any) -> Potentials:
    """Return an adjoint times a number; tables are multiplied in place."""
    if scale == 1:
        return table
    if not table.has_tables_only:
        groups: Sequence[Group] = [group.like(scale * group.vector()) for group in table.groups]
        return Potentials.from_groups(table.graph, scale * table.unary_flat, groups)
    for flat in (table.unary_flat, table.factors_flat):
        flat *= scale
    return table


def _floats(values: Any, what: str) -> torch.Tensor:
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values)
    if not isinstance(values, torch.Tensor):
        raise InputError(f"{what} must be a torch.Tensor, received {type(values).__name__}.")
    if values.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{what} must be float32 or float64, received {values.dtype}; call .float() on it.")
    return values


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy())
