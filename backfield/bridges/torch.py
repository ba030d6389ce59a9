"""A random field as a layer of a PyTorch network: potentials in, marginals, losses or labels out.

The forward pass runs the inference kernels on the memory of the tensors, the backward pass their adjoints: what is
differentiated is exactly what was computed, after five sweeps as after five hundred ([D13] §7). Needs
``pip install 'backfield[torch]'``; nothing else of backfield imports PyTorch to work.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError("backfield.bridges.torch needs PyTorch: pip install 'backfield[torch]'.") from error

from backfield.api import infer
from backfield.bridges._torch_functions import (
    Loss,
    LossTask,
    Marginals,
    MarginalsTask,
    Tables,
    applied,
    pick_strategy,
    table_sizes,
)
from backfield.bridges._torch_groups import are_groups, are_kernels, read_groups
from backfield.decoders import Decoder
from backfield.errors import InputError
from backfield.gradients import Truncated
from backfield.graph import Graph
from backfield.graph.conditioning import Evidence, evidence
from backfield.graph.labeling import as_labeling, checked_weights
from backfield.graph.potentials import _factor_shapes
from backfield.inference.base import IterativeInference
from backfield.objectives import Marginal, Objective, Setting, Target, get_objective, jgmt_alias, make_setting
from backfield.registry import get

_warned_of_copies = False


class MarginalTensors(NamedTuple):
    """Marginals in the shapes of the potentials."""

    unary: Any
    factors: Any


class CRFLayer(torch.nn.Module):
    """A random field without weights: potentials are the output of the layers before it.

    Parameters
    ----------
    graph_or_shape : Graph, (H, W), list of these, or None
        The graph of every example, or one for each of a batch. None: grids, of the height and width of each tensor.
    n_labels : int
        Label count; may be left out where graphs are given.
    inference : str
    gradient : str
        ``truncated`` is the derivative of what the sweeps computed; the others hold where inference has converged.
    n_jobs : int
        Threads over the examples of a batch; results do not depend on it.

    Notes
    -----
    ``unary`` is (n, L) or, on grids, (H, W, L); ``factors`` is (F, L, ..., L), or (L, L) for one table everywhere. A batch
    of examples on one graph has one more axis in front (of ``unary``; ``factors`` without it are shared); examples on
    different graphs come as lists of tensors. Tables of mixed label counts are lists of tensors, as in
    :class:`backfield.Potentials`. Contiguous float32 and float64 tensors on the CPU are not copied; tensors on other
    devices are copied there and back, with a warning.

    Factors may be given by groups, as in :class:`backfield.Potentials`: a :class:`backfield.Tied` of tensors, or a list with
    one entry (tied, or tables) for each of ``graph.groups``. Tables and scales get gradients; no table per factor is written
    where inference takes tied groups. In a batch, tables (B, K, L, L) and scales (B, n_factors, K) are each
    example's own, others are shared. Scales without ``requires_grad`` are data.

    A :class:`backfield.Kernel`, or several in a list (after the graph's groups, if there are any), joins all pairs of
    variables: its weight, compatibility and bandwidths may be tensors, which get gradients; features (n, d) are data,
    (B, n, d) each example's own. With kernels alone a grid needs no edges; ``inference`` must be ``mean_field``.

    Examples
    --------
    >>> layer = CRFLayer((100, 100), 2, inference="tree_reweighted(n_iter=5)")
    >>> layer.loss(unary, factors, labels, loss="univariate_logistic").backward()  # doctest: +SKIP
    """

    def __init__(
        self,
        graph_or_shape: Any = None,
        n_labels: int | None = None,
        inference: Any = "tree_reweighted(n_iter=5)",
        gradient: Any = "truncated",
        n_jobs: int = 1,
    ) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.inference = get("inference", inference)
        self.gradient = None if gradient in (None, "direct") else get("gradients", gradient)
        self.n_jobs = n_jobs
        self._grids: dict[tuple[int, int, int], Graph] = {}
        self._objectives: dict[str, tuple[Objective, Setting]] = {}
        self._read: dict[Any, _Batch] = {}
        several = isinstance(graph_or_shape, list) or (
            isinstance(graph_or_shape, tuple) and any(not isinstance(each, int | np.integer) for each in graph_or_shape)
        )
        self.graph: Graph | None = None
        self.graphs: list[Graph] | None = None
        if several:
            self.graphs = [self._as_graph(each) for each in graph_or_shape]
        elif graph_or_shape is not None:
            self.graph = self._as_graph(graph_or_shape)

    def extra_repr(self) -> str:
        """Return what ``print(layer)`` shows."""
        graph = self.graph if self.graphs is None else f"{len(self.graphs)} graphs"
        return f"{graph}, n_labels={self.n_labels}, inference={self.inference!r}, gradient={self.gradient!r}"

    def marginals(self, unary: Any, factors: Any = None, *, observed: Any = None, cliques: bool = True) -> MarginalTensors:
        """Return marginals of variables and factors, shaped as the potentials.

        ``observed``: labels to condition on, -1 = free. Without ``cliques`` factors' marginals are None, and cost nothing.
        """
        batch, tensors = self._batch(unary, factors)
        kind = cliques, torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        task = batch.tasks.get(kind) if observed is None else None
        if task is None:
            task = self._marginals_task(batch, observed, *kind)
        if observed is None:
            batch.tasks[kind] = task
        found = applied(Marginals, task, *tensors)
        half = len(batch.tables.counts)
        mu_factors = batch.shaped(found[half:], batch.factor_shapes) if cliques else None
        return MarginalTensors(batch.shaped(found[:half], batch.unary_shapes), mu_factors)

    def loss(
        self,
        unary: Any,
        factors: Any,
        labels: Any,
        loss: Any = "univariate_logistic",
        *,
        observed: Any = None,
        weights: Any = None,
        seed: int = 0,
        reduction: str = "sum",
    ) -> torch.Tensor:
        """Return a loss, as :func:`backfield.value_and_gradient` does, over the examples of the batch.

        Parameters
        ----------
        labels : ints shaped as the variables, -1 = hidden, or a boolean mask of allowed labels shaped as ``unary``
        loss : str
            A loss on marginals or an objective.
        observed, weights
            Inputs to condition on; weights of variables or labels.
        seed : int
            For losses that draw random numbers; example k gets seed + k.
        reduction : {"sum", "mean", "none"}
            The sum over the batch, the mean per example, or one value for each example.
        """
        if reduction not in ("sum", "mean", "none"):
            raise InputError(f"reduction must be 'sum', 'mean' or 'none', received {reduction!r}.")
        objective, setting = self._objective(loss)
        batch, tensors = self._batch(unary, factors)
        known = zip(batch.tables.graphs, batch.each(labels, "labels"), strict=True)
        targets = [Target(as_labeling(graph, labels)) for graph, labels in known]
        if observed is not None or weights is not None:
            targets = self._narrowed(batch, targets, observed, weights)
        for target in targets:
            objective.admit(target)
        setting = setting if seed == setting.seed else setting._replace(seed=seed)
        check = not (batch.tables.watched and observed is None and isinstance(objective, Marginal))
        task = LossTask(batch.tables, objective, setting, targets, batch.batched, check)
        values = batch.back(applied(Loss, task, *tensors))
        if reduction == "none" or not batch.batched:
            return values
        return values.sum() if reduction == "sum" else values.mean()

    @torch.no_grad()
    def decode(self, unary: Any, factors: Any = None, decoder: Any = "max_marginal", *, observed: Any = None) -> Any:
        """Return predicted labels, one for each variable (what ``decoder`` returns, in tensors)."""
        part: Decoder = get("decoders", decoder)
        batch, tensors = self._batch(unary, factors)
        thetas, given = batch.tables.thetas(tensors), batch.each(observed, "observed")

        def decode(k: int) -> np.ndarray:
            mu = None
            if part.needs_marginals:
                mu = infer(thetas[k], self.inference, observed=given[k], dtype=thetas[k].dtype).marginals
            return np.asarray(part.decode(thetas[k], mu))

        decoded = [torch.from_numpy(each).to(batch.device) for each in batch.tables.map(decode)]
        if any(table is None for table in batch.unary_shapes):  # mixed label counts: one number per variable
            return decoded if batch.batched else decoded[0]
        shaped = [d.reshape(s[:-1] + d.shape[1:]) for d, s in zip(decoded, batch.one_shapes(), strict=True)]
        if not batch.batched:
            return shaped[0]
        return shaped if batch.listed else torch.stack(shaped)

    def _marginals_task(self, batch: _Batch, observed: Any, cliques: bool, differentiate: bool) -> MarginalsTask:
        """Return what is to be inferred; without ``observed`` it is the same for all tensors of these shapes."""
        given = self._evidence(batch, observed)
        strategy = pick_strategy(self.inference, self.gradient)
        free = all(each is None for each in given)
        taped = differentiate and isinstance(strategy, Truncated) and isinstance(self.inference, IterativeInference)
        check = not (free and batch.tables.watched)
        return MarginalsTask(batch.tables, self.inference, strategy, given, cliques, taped, check)

    def _objective(self, loss: Any) -> tuple[Objective, Setting]:
        """Return a loss and its checked setting; those of specs are kept, as parsing one takes a while."""
        if isinstance(loss, str) and loss in self._objectives:
            return self._objectives[loss]
        objective, alias = get_objective(loss), jgmt_alias(loss)
        if alias is not None and alias.inference is not None:
            raise InputError(f"{loss!r} names an inference, which a layer has: write CRFLayer(..., {alias.inference!r}).")
        setting = make_setting(objective, self.inference, self.gradient if objective.needs_inference else None)
        if isinstance(loss, str):
            self._objectives[loss] = objective, setting
        return objective, setting

    # ---- reading what people pass ----

    def _batch(self, unary: Any, factors: Any) -> tuple[_Batch, Sequence[torch.Tensor]]:
        """Return the examples and their tensors; shapes that were read before are not read again, which takes a while."""
        if not (isinstance(unary, torch.Tensor) and isinstance(factors, torch.Tensor)):
            return self._new_batch(unary, factors)
        key = (unary.shape, unary.dtype, factors.shape, factors.dtype, self.n_jobs)
        known = self._read.get(key)
        if known is not None and unary.is_cpu and factors.is_cpu:
            return known, (unary, factors)
        batch, tensors = self._new_batch(unary, factors)
        if tensors[0] is unary and tensors[1] is factors:
            self._read[key] = batch
        return batch, tensors

    def _new_batch(self, unary: Any, factors: Any) -> tuple[_Batch, Sequence[torch.Tensor]]:
        listed = isinstance(unary, list | tuple) and not self._is_ragged(unary)
        batch, tensors = self._listed(unary, factors) if listed else self._equal(unary, factors)
        if len({tensor.dtype for tensor in tensors}) > 1:
            tensors = [tensor.to(torch.float64) for tensor in tensors]
        batch.tables.shapes = [tensor.shape for tensor in tensors]
        different = {id(graph): graph for graph in batch.tables.graphs}.values()
        batch.tables.watched = batch.tables.kinds is None and all(map(self.inference.sees_bad_numbers, different))
        return batch, tensors

    def _listed(self, unary: Sequence[Any], factors: Any) -> tuple[_Batch, Sequence[torch.Tensor]]:
        """Return examples that come in lists of tensors."""
        if len(unary) == 0:
            raise InputError("the batch is empty.")
        if factors is not None and (not isinstance(factors, list | tuple) or len(factors) != len(unary)):
            raise InputError(f"a list of {len(unary)} unary tensors needs a list of {len(unary)} factor tensors.")
        graphs = self.graphs if self.graphs is not None else [self.graph] * len(unary)
        if len(graphs) != len(unary):
            raise InputError(f"the layer has {len(graphs)} graphs; the batch has {len(unary)} examples.")
        parts = [
            self._single(graph if graph is not None else self._grid_of(u), u, None if factors is None else factors[k], k)
            for k, (graph, u) in enumerate(zip(graphs, unary, strict=True))
        ]
        found = [part for part, _ in parts]
        kinds = [part.tables.kinds[0] if part.tables.kinds else None for part in found]
        marginals = [part.factor_shapes[0] or (-1,) for part in found]
        tables = Tables([part.tables.graphs[0] for part in found], [1] * len(found), self.n_jobs)
        if any(kinds):
            tables.read_by(kinds, marginals)
        shapes = [part.unary_shapes[0] for part in found], [part.factor_shapes[0] for part in found]
        tensors = [pair[0] for _, pair in parts] + [pair[1] for _, pair in parts]
        return _Batch(tables, *shapes, found[0].device, batched=True, listed=True), tensors

    def _equal(self, unary: Any, factors: Any) -> tuple[_Batch, Sequence[torch.Tensor]]:
        """Return one example, or examples of one graph."""
        if self.graphs is not None:
            raise InputError(f"the layer has {len(self.graphs)} graphs; pass lists of as many tensors.")
        graph = self.graph if self.graph is not None else self._grid_of(unary)
        if graph.n_labels is None or (graph.arity is None and graph.n_factors):
            return self._single(graph, unary, factors, 0)
        unary = _tensor(unary, "unary")
        labels = graph.n_labels
        ones = [(graph.n_variables, labels)] + ([(*graph.shape, labels)] if graph.shape is not None else [])
        shape = tuple(unary.shape)
        if shape in ones:
            return self._single(graph, unary, factors, 0)
        if shape[1:] not in ones or shape[0] == 0:
            wanted = " or ".join(str(each) for each in ones)
            raise InputError(f"unary must have shape {wanted}, or one more axis in front for a batch; received {shape}.")
        graph = self._without_edges(graph) if are_kernels(factors) else graph
        counted = Tables([graph] * shape[0], [shape[0]], self.n_jobs)
        if are_groups(factors):
            tables, kinds = read_groups(graph, factors, shape[0])
            counted.read_by(kinds, [(shape[0], *_factor_shapes(graph)[0])])  # type: ignore[misc]
        else:
            tables = _expanded(graph, factors, unary, (shape[0],))
        both = [_on_cpu(unary), _on_cpu(tables)]
        return _Batch(counted, [shape], [tuple(tables.shape)], unary.device, batched=True), both

    def _single(self, graph: Graph, unary: Any, factors: Any, number: int) -> tuple[_Batch, Sequence[torch.Tensor]]:
        graph = self._without_edges(graph) if are_kernels(factors) else graph
        uniform, _ = _factor_shapes(graph)
        sizes = table_sizes(graph)
        unary_shape = factor_shape = None
        if graph.n_labels is not None:
            unary = _tensor(unary, "unary")
            unary_shape = tuple(unary.shape)
        else:
            unary = torch.cat([_tensor(table, "unary").reshape(-1) for table in unary])
        tables = Tables([graph], [1], self.n_jobs)
        if are_groups(factors):
            factors, kinds = read_groups(graph, factors, None)
            tables.read_by(kinds, [uniform or (-1,)])
            factor_shape, sizes = uniform, (sizes[0], factors.numel())
        elif uniform is not None:
            factors = _expanded(graph, factors, unary, ())
            factor_shape = tuple(factors.shape)
        else:
            factors = torch.cat([_tensor(table, "factors").reshape(-1) for table in factors])
        for what, tensor, size in (("unary", unary, sizes[0]), ("factors", factors, sizes[1])):
            if tensor.numel() != size:
                raise InputError(
                    f"example {number}: {what} holds {tensor.numel()} numbers, of shape {tuple(tensor.shape)}; {graph!r} "
                    f"needs {size}."
                )
        both = [_on_cpu(unary), _on_cpu(factors)]
        return _Batch(tables, [unary_shape], [factor_shape], unary.device, batched=False), both

    def _without_edges(self, graph: Graph) -> Graph:
        """Return the variables of a graph alone."""
        if graph.n_factors == 0:
            return graph
        return graph.compiled("without edges", lambda: Graph(labels=graph.labels))

    def _is_ragged(self, unary: Any) -> bool:
        """Whether a list holds the tables of one example of mixed label counts."""
        return self.graph is not None and self.graph.n_labels is None and getattr(unary[0], "ndim", 2) == 1

    def _as_graph(self, given: Any) -> Graph:
        if isinstance(given, Graph):
            if self.n_labels is not None and given.n_labels is not None and given.n_labels != self.n_labels:
                raise InputError(f"the layer has n_labels={self.n_labels}, its graph {given.n_labels} labels.")
            return given
        try:
            rows, columns = (int(each) for each in given)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"CRFLayer needs a Graph, a shape (H, W), a list of them or None; received {given!r}."
            ) from error
        if self.n_labels is None:
            raise InputError("CRFLayer needs n_labels together with a shape.")
        return self._grid(rows, columns, self.n_labels)

    def _grid(self, *key: int) -> Graph:
        if key not in self._grids:
            self._grids[key] = Graph.grid(key[0], key[1], labels=key[2])  # type: ignore[index]
        return self._grids[key]  # type: ignore[index]

    def _grid_of(self, unary: Any) -> Graph:
        shape = tuple(getattr(unary, "shape", ()))
        if len(shape) not in (3, 4) or 0 in shape or (self.n_labels is not None and shape[-1] != self.n_labels):
            count = "L" if self.n_labels is None else self.n_labels
            raise InputError(f"unary must have shape (H, W, {count}) or (B, H, W, {count}); received {shape}.")
        return self._grid(*shape[-3:])

    def _narrowed(self, batch: _Batch, targets: list[Target], observed: Any, weights: Any) -> list[Target]:
        """Return targets with what is observed and with weights."""
        given, per_label = self._evidence(batch, observed), batch.each(weights, "weights")
        return [
            dataclasses.replace(target, observed=given[k], weights=checked_weights(graph, per_label[k]))
            for k, (graph, target) in enumerate(zip(batch.tables.graphs, targets, strict=True))
        ]

    def _evidence(self, batch: _Batch, observed: Any) -> list[Evidence | None]:
        if observed is None:
            return [None] * len(batch.tables.graphs)
        return list(map(evidence, batch.tables.graphs, batch.each(observed, "observed")))


class _Batch:
    """The shapes of examples in pairs of tensors; None where tables of mixed sizes were joined."""

    def __init__(
        self,
        tables: Tables,
        unary_shapes: list[tuple[int, ...] | None],
        factor_shapes: list[tuple[int, ...] | None],
        device: torch.device,
        batched: bool,
        listed: bool = False,
    ) -> None:
        self.tables = tables
        self.unary_shapes, self.factor_shapes = unary_shapes, factor_shapes
        self.device, self.batched, self.listed = device, batched, listed
        self.elsewhere = device.type != "cpu"
        self.tasks: dict[tuple[bool, bool], MarginalsTask] = {}

    def one_shapes(self) -> list[Any]:
        """Return the unary shape of each example."""
        if self.listed or not self.batched:
            return self.unary_shapes
        return [self.unary_shapes[0][1:]] * len(self.tables.graphs)  # type: ignore[index]

    def back(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a result on the device of what was passed."""
        return tensor.to(self.device) if self.elsewhere else tensor

    def shaped(self, tensors: Sequence[torch.Tensor], shapes: list[tuple[int, ...] | None]) -> Any:
        """Give results the shapes of what was passed; tables of mixed sizes become lists."""
        if not self.listed and shapes[0] is not None:
            return self.back(tensors[0])
        out: list[Any] = []
        for k, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True)):
            graph = self.tables.graphs[k]
            if shape is not None:
                out.append(self.back(tensor))
                continue
            sizes: Any = [(int(count),) for count in graph.labels]
            if shapes is self.factor_shapes:
                sizes = _factor_shapes(graph)[1]
            parts = torch.split(tensor, [int(np.prod(size)) for size in sizes])
            out.append([part.reshape(size).to(self.device) for part, size in zip(parts, sizes, strict=True)])
        return out if self.listed else out[0]

    def each(self, values: Any, what: str) -> list[Any]:
        """Return labels, observations or weights of each example as arrays; None where there are none."""
        graphs = self.tables.graphs
        if values is None:
            return [None] * len(graphs)
        if not self.batched:
            return [_per_variable(graphs[0], self.unary_shapes[0], values)]
        if len(values) != len(graphs):
            wanted = (
                f"be a list of {len(graphs)}, one for each example"
                if self.listed
                else f"have {len(graphs)} examples, as unary has"
            )
            raise InputError(f"{what} must {wanted}; received {len(values)}.")
        return [_per_variable(*three) for three in zip(graphs, self.one_shapes(), values, strict=True)]


def _per_variable(graph: Graph, unary_shape: Any, values: Any) -> Any:
    """Return (n,) or (n, L) values from those of the shape of a grid, or of its unary tables."""
    if isinstance(values, torch.Tensor):
        values = (values.detach() if values.is_cpu else values.detach().cpu()).numpy()
    grid = graph.shape if graph.shape is not None or unary_shape is None else tuple(unary_shape[:-1])
    if grid is None or graph.n_labels is None:
        return values
    values = np.asarray(values)
    shape = values.shape
    n_axes = len(grid)
    return values.reshape(graph.n_variables, *shape[n_axes:]) if shape[:n_axes] == grid else values


def _tensor(value: Any, what: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{what} must be a torch.Tensor, received {type(value).__name__}.")
    if value.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{what} must be float32 or float64, received {value.dtype}; call .float() on it.")
    return value


def _expanded(graph: Graph, factors: Any, unary: torch.Tensor, batch: tuple[int, ...]) -> torch.Tensor:
    """Return factors of each example: as given, shared by the batch, or one table for all factors."""
    shape, _ = _factor_shapes(graph)
    assert shape is not None
    if factors is None:
        return torch.zeros(1, dtype=unary.dtype, device=unary.device).expand(*batch, *shape).reshape(*batch, *shape)
    factors = _tensor(factors, "factors")
    wanted = (*batch, *shape)
    if tuple(factors.shape) in (shape, shape[1:], wanted):
        return factors if tuple(factors.shape) == wanted else factors.expand(wanted)
    more = ", or one more axis in front" if batch else ""
    got = tuple(factors.shape)
    raise InputError(f"factors must have shape {shape}, or {shape[1:]} for one table everywhere{more}; received {got}.")


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that kernels can read; PyTorch itself takes the gradient back."""
    global _warned_of_copies
    if tensor.device.type == "cpu":
        return tensor
    if not _warned_of_copies:
        _warned_of_copies = True
        warnings.warn(
            f"CRFLayer computes on the CPU: tensors on {tensor.device} are copied there, and results back.", stacklevel=5
        )
    return tensor.to("cpu")
