"""Losses and marginals as functions that PyTorch differentiates, once through our adjoints and twice by complex steps.

    loss       value_k = f(theta_k)       once: d_value gradient        twice: d_value H v, <gradient, v>
    marginals  mu_k = mu(theta_k)         once: J' d_mu                 twice: d <d_mu, J v> / d theta, J v

Tensors come in pairs (unary tables, numbers of the factors): one pair with all examples of equal graphs, first axis first,
or one for each example. The numbers of the factors are their tables, or those of their groups (``_torch_groups``). Arrays
that kernels read and write share their memory. Examples are computed alone, each in one thread, and PyTorch adds them up:
the same bytes for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from backfield.api import checked
from backfield.bridges._torch_groups import Kinds, group_numbers, scaled, with_numbers
from backfield.errors import InputError
from backfield.gradients import Gradient, Truncated
from backfield.gradients.base import Outcome, with_tables
from backfield.gradients.truncated import Tape
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Evidence
from backfield.graph.potentials import _check_values
from backfield.inference.base import ExactInference, Inference, IterativeInference
from backfield.inference.conditioned import Conditioned, infer_given
from backfield.kernels.compile import kernel
from backfield.objectives import Objective, Setting, Target, evaluate
from backfield.training.execution.threads import keep_freed_memory, map_in_order

#: Step of the derivative by complex numbers: (f(x + i h)).imag / h has no rounding error of a difference.
STEP = 1e-100


@dataclass
class Tables:
    """Graphs of the examples, how many of them each pair of tensors holds, and the shapes of the tensors."""

    graphs: list[Graph]
    counts: list[int]
    n_jobs: int
    shapes: list[torch.Size] = field(default_factory=list)
    #: Shapes of marginals, where they are not those of theta.
    marginal_shapes: list[Any] | None = None
    #: How the numbers of the factors of each example are read, None: as tables; None where all are.
    kinds: list[Kinds | None] | None = None
    #: Whether inference itself asks potentials that are no numbers to ``verify``.
    watched: bool = False

    def __post_init__(self) -> None:
        # After a kernel every Python object that is touched comes from far away: one example takes the short way.
        self.alone = self.counts == [1]

    def read_by(self, kinds: list[Kinds | None], marginal_shapes: list[Any]) -> None:
        """Let factors be groups; marginals of factors then have one shape per group."""
        self.kinds, self.marginal_shapes, self.alone = kinds, marginal_shapes, False

    def rows(self, tensors: Sequence[torch.Tensor | None]) -> list[np.ndarray | None]:
        """Return the numbers of each example, flat; they share memory with contiguous tensors."""
        out: list[np.ndarray | None] = []
        for tensor, count in zip(tensors, self.counts, strict=True):
            if tensor is not None and count == 1:
                out.append(tensor.detach().numpy().reshape(-1))  # an array is reshaped sooner than a tensor
            else:
                out += [None] * count if tensor is None else list(tensor.detach().reshape(count, -1).numpy())
        return out

    def thetas(self, tensors: Sequence[torch.Tensor], check: bool = True) -> list[Potentials]:
        """Return the potentials of each example, refused where they are no numbers.

        Without ``check`` they are only refused when they ``verify``: a backward pass knows, and some methods see it.
        """
        if self.alone and not check:
            flat = [tensor.detach().numpy().reshape(-1) for tensor in tensors]
            return [_Unread.from_flat(self.graphs[0], *flat)]
        half = len(self.counts)
        out: list[Potentials] = []
        for k, (u, f) in enumerate(zip(self.rows(tensors[:half]), self.rows(tensors[half:]), strict=True)):
            assert u is not None and f is not None
            theta = self._theta(k, u, f)
            theta.number = k if len(self.graphs) > 1 else None
            if check:
                theta.known_finite = _surely_fine(u, f)
                if not theta.known_finite:
                    theta.verify()
            out.append(theta)
        return out

    def _theta(self, k: int, unary: np.ndarray, numbers: np.ndarray) -> _Unread:
        kinds = None if self.kinds is None else self.kinds[k]
        if kinds is None:
            return _Unread.from_flat(self.graphs[k], unary, numbers)
        return _Unread.from_groups(self.graphs[k], unary, with_numbers(kinds, numbers))

    def tensors(self, arrays: Sequence[np.ndarray], shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
        """Return arrays in tensors of given shapes; a lone example is not copied."""
        out, at = [], 0
        for count, shape in zip(self.counts, shapes, strict=True):
            found = arrays[at] if count == 1 else np.stack(arrays[at : at + count])
            out.append(torch.from_numpy(found.reshape(shape)))
            at += count
        return out

    def marginal_tensors(self, tables: Sequence[Potentials], cliques: bool = True) -> tuple[torch.Tensor, ...]:
        """Return the tensors of marginals of the variables, then of those of the factors."""
        if self.marginal_shapes is None:
            return self.all_tensors(tables, cliques)
        half = len(self.counts)
        several = self.tensors([t.unary_flat for t in tables], self.shapes[:half])
        return *several, *(self.tensors([t.factors_flat for t in tables], self.marginal_shapes) if cliques else ())

    def all_tensors(self, tables: Sequence[Potentials], cliques: bool = True) -> tuple[torch.Tensor, ...]:
        """Return the tensors of unary tables, then those of the numbers of factors, in the shapes of those of theta."""
        if self.alone:
            unary = torch.from_numpy(tables[0].unary_flat.reshape(self.shapes[0]))
            return (unary, torch.from_numpy(tables[0].factors_flat.reshape(self.shapes[1]))) if cliques else (unary,)
        half = len(self.counts)
        several = self.tensors([t.unary_flat for t in tables], self.shapes[:half])
        return *several, *(self.tensors([group_numbers(t) for t in tables], self.shapes[half:]) if cliques else ())

    def map(self, function: Callable[[int], Any]) -> list[Any]:
        """Return the results of all examples."""
        keep_freed_memory(max((16 * graph.n_variables for graph in self.graphs), default=0))
        if len(self.graphs) == 1:
            return [function(0)]
        return map_in_order(function, len(self.graphs), self.n_jobs)


class _Unread(Potentials):
    """Potentials that nobody has looked at yet; ``number`` is that of the example in a batch."""

    number: int | None = None

    def verify(self) -> None:
        """Refuse what is no number, or too large, or leaves a variable no label; say in which example."""
        try:
            _check_values(self)
            checked(self, self.dtype)
        except InputError as error:
            raise InputError(str(error) if self.number is None else f"example {self.number}: {error}") from error


@dataclass
class LossTask:
    """An objective of the examples of a batch."""

    tables: Tables
    objective: Objective
    setting: Setting
    targets: list[Target]
    batched: bool
    check: bool

    def at(self, k: int, theta: Potentials, setting: Setting | None = None) -> tuple[Any, Potentials]:
        """Return the value and gradient of example ``k``."""
        setting = self.setting if setting is None else setting
        setting = setting._replace(seed=setting.seed + k) if k else setting
        return evaluate(self.objective, theta, self.targets[k], setting)

    def gradients(self, tensors: Any) -> list[Potentials]:
        """Return the gradient of each example."""
        thetas = self.tables.thetas(tensors)
        return self.tables.map(lambda k: self.at(k, thetas[k])[1].astype(thetas[k].dtype))

    def scaled(self, gradients: list[Potentials], d_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return d_value times the gradient of each example, in its place."""
        scales = d_values.tolist() if d_values.dim() else [d_values.item()]
        return self.tables.all_tensors([scaled(*pair) for pair in zip(gradients, scales, strict=True)])

    def second(self, k: int, theta: Potentials, direction: np.ndarray) -> tuple[float, Potentials]:
        """Return <gradient, v> and H v of example ``k``, from the gradient at theta + i h v."""
        if not (self.objective.smooth and self.objective.integrable):
            raise InputError(f"{self.objective.name} has no second derivative; use a logistic or quadratic loss.")
        refuse_at_convergence(self.setting.gradient)
        moved = theta.vector().astype(np.complex128) + 1j * STEP * direction
        gradient = self.at(k, theta.like(moved), self.setting._replace(gradient=Truncated()))[1].vector()
        return float(gradient.real @ direction), theta.like((gradient.imag / STEP).astype(theta.dtype))


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Return ``function.apply`` by the short way: what it does before is for transforms, which are refused here."""
    if torch._C._are_functorch_transforms_active():
        raise InputError("CRFLayer takes no torch.func transform (vmap, grad, ...): pass a batch, and use torch.autograd.")
    # The base class of Function is where apply of C++ lives; PyTorch's stubs do not show it.
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]


class Loss(torch.autograd.Function):
    """Values (examples,) of an objective; one number where there is no batch."""

    @staticmethod
    def forward(ctx: Any, task: LossTask, *tensors: torch.Tensor) -> torch.Tensor:
        """Evaluate, and keep the gradients, which come with the values."""
        thetas = task.tables.thetas(tensors, task.check)
        found = [task.at(0, thetas[0])] if task.tables.alone else task.tables.map(lambda k: task.at(k, thetas[k]))
        values = [float(value.real) for value, _ in found]
        if not math.isfinite(sum(values)):
            raise InputError(f"{task.objective.name} is not finite: labels of probability zero, or inference diverged.")
        ctx.task, ctx.gradients = task, [d_theta.astype(thetas[0].dtype) for _, d_theta in found]
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(np.array(values if task.batched else values[0], thetas[0].dtype))

    @staticmethod
    def backward(ctx: Any, *d_values: torch.Tensor) -> Any:
        """Return the gradients, times the adjoints of the values."""
        gradients, ctx.gradients = ctx.gradients, None  # handed out in place; a second backward computes them again
        gradients = ctx.task.gradients(ctx.saved_tensors) if gradients is None else gradients
        if not torch.is_grad_enabled():
            return None, *ctx.task.scaled(gradients, d_values[0])
        return None, *LossGradient.apply(ctx.task, gradients, d_values[0], *ctx.saved_tensors)


class LossGradient(torch.autograd.Function):
    """d_value_k times the gradient of example k, itself a function to differentiate."""

    @staticmethod
    def forward(ctx: Any, task: LossTask, gradients: list[Potentials], d_values: torch.Tensor, *tensors: Any) -> Any:
        """Scale the gradients."""
        ctx.task = task
        ctx.save_for_backward(d_values, *tensors)
        return task.scaled(gradients, d_values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *directions: torch.Tensor) -> Any:
        """Return <gradient, v> and d_value H v for each example."""
        d_values, *tensors = ctx.saved_tensors
        task, thetas = ctx.task, ctx.task.tables.thetas(tensors)
        along = _vectors(task.tables, directions)
        found = task.tables.map(lambda k: task.second(k, thetas[k], along[k]))
        scales = d_values.reshape(-1).tolist()
        seconds = [scaled(second, scale) for (_, second), scale in zip(found, scales, strict=True)]
        dots = torch.tensor([dot for dot, _ in found], dtype=d_values.dtype).reshape(d_values.shape)
        return None, None, dots, *task.tables.all_tensors(seconds)


@dataclass
class MarginalsTask:
    """Inference on the examples of a batch."""

    tables: Tables
    method: Inference
    strategy: Gradient
    observed: list[Evidence | None]
    cliques: bool
    taped: bool
    check: bool

    def forward(self, k: int, theta: Potentials) -> tuple[Potentials, Any]:
        """Return the marginals of example ``k``, and the tape where there is one."""
        if not self.taped:
            return infer_given(self.method, theta, self.observed[k]).marginals.astype(theta.dtype), None
        assert isinstance(self.method, IterativeInference) and isinstance(self.strategy, Truncated)
        model = Conditioned(theta, self.observed[k], self.method)
        assert model.theta is not None
        engine = self.method.bind(model.theta)
        tape = Tape(engine, self.method, self.strategy.memory)
        return engine.marginals(tape.last, factors=self.cliques).astype(theta.dtype), tape

    def adjoint(self, tapes: list[Tape] | None, d_mu: Any, tensors: Callable[[], Any]) -> Any:
        """Return J' d_mu of all examples; without tapes, theta is read from the tensors again."""
        if tapes is not None and self.tables.alone and d_mu[1] is None:
            d_unary = d_mu[0].numpy().reshape(-1)
            found = _unwound(tapes[0], Potentials.from_flat(self.tables.graphs[0], d_unary, d_unary[:0]))
            return self.tables.all_tensors([found.astype(d_unary.dtype)])
        adjoints = _adjoints(self.tables, d_mu)
        tables = self.tables.kinds is None
        thetas = [] if tapes is not None and tables else self.tables.thetas(tensors(), check=False)

        def example(k: int) -> Potentials:
            found = _unwound(tapes[k], adjoints[k]) if tapes is not None else self.linear(k, thetas[k], adjoints[k]).d_theta
            found = found.astype(adjoints[k].dtype)
            return found if tables else thetas[k].contract(found)

        return self.tables.all_tensors(self.tables.map(example))

    def linear(self, k: int, theta: Potentials, d_mu: Potentials, strategy: Gradient | None = None) -> Outcome:
        """Differentiate <d_mu, mu(theta)>."""
        strategy = strategy or self.strategy
        through = isinstance(self.method, IterativeInference) and strategy.through_engine
        model = Conditioned(theta if through else theta.written_out(), self.observed[k], self.method)
        d_mu = with_tables(d_mu)
        if model.theta is None:
            return Outcome(0.0, model.expand(None, 0.0), model.expand(None), 0, True)

        def loss(mu: Potentials) -> tuple[Any, Potentials]:
            reduced = model.expand_vjp(d_mu).astype(mu.dtype)
            value = reduced.unary_flat @ mu.unary_flat + reduced.factors_flat @ mu.factors_flat
            return value, reduced

        found = strategy.differentiate(self.method, model.theta, loss, cliques=True)
        d_theta = theta.contract(model.expand(found.d_theta, 0.0))
        return found._replace(d_theta=d_theta, mu=model.expand(found.mu, 0.0))


def _unwound(tape: Tape, d_mu: Potentials) -> Potentials:
    """Return J' d_mu through the states of the forward pass."""
    engine = tape.engine
    d_theta, d_state = engine.adjoint(), np.zeros_like(tape.last)
    engine.marginals_vjp(tape.last, d_mu.astype(engine.theta.dtype), d_state, d_theta)
    tape.unwind(d_state, d_theta)
    return d_theta.potentials(engine.theta.graph)


class Marginals(torch.autograd.Function):
    """Marginals of the variables, then of the factors, in tensors as those of theta."""

    @staticmethod
    def forward(ctx: Any, task: MarginalsTask, *tensors: torch.Tensor) -> Any:
        """Infer, and keep the states where the strategy wants them."""
        if task.cliques:
            ctx.set_materialize_grads(False)
        thetas = task.tables.thetas(tensors, task.check)
        found = [task.forward(0, thetas[0])] if task.tables.alone else task.tables.map(lambda k: task.forward(k, thetas[k]))
        ctx.task, ctx.tapes = task, [tape for _, tape in found] if task.taped else None
        ctx.save_for_backward(*tensors)
        return task.tables.marginal_tensors([mu for mu, _ in found], task.cliques)

    @staticmethod
    def backward(ctx: Any, *d_mu: torch.Tensor | None) -> Any:
        """Return J' d_mu."""
        if not ctx.task.cliques:
            d_mu += (None,) * len(d_mu)
        elif all(part is None for part in d_mu):
            return None, *d_mu
        tapes, ctx.tapes = ctx.tapes, None  # unwinding uses a tape up; a second backward infers again
        if not torch.is_grad_enabled():
            return None, *ctx.task.adjoint(tapes, d_mu, lambda: ctx.saved_tensors)
        return None, *MarginalsGradient.apply(ctx.task, tapes, len(d_mu), *d_mu, *ctx.saved_tensors)


class MarginalsGradient(torch.autograd.Function):
    """J(theta)' d_mu, itself a function to differentiate."""

    @staticmethod
    def forward(ctx: Any, task: MarginalsTask, tapes: list[Tape] | None, n: int, *given: Any) -> Any:
        """Apply the adjoint of inference."""
        ctx.set_materialize_grads(False)
        ctx.task, ctx.n = task, n
        ctx.save_for_backward(*given)
        return task.adjoint(tapes, given[:n], lambda: given[n:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *directions: torch.Tensor | None) -> Any:
        """Return J v, and the derivative of <d_mu, J v>, by a complex step along v."""
        task, given = ctx.task, ctx.saved_tensors
        if all(part is None for part in directions):
            return None, None, None, *[None] * ctx.n, *directions
        refuse_at_convergence(task.strategy)
        thetas = task.tables.thetas(given[ctx.n :])
        adjoints = _adjoints(task.tables, given[: ctx.n], zeros=True)
        along = _vectors(task.tables, directions)

        def example(k: int) -> tuple[Potentials, Potentials]:
            theta = thetas[k]
            moved = theta.like(theta.vector().astype(np.complex128) + 1j * STEP * along[k])
            found = task.linear(k, moved, adjoints[k], Truncated())
            parts = [(part.vector().imag / STEP).astype(theta.dtype) for part in (found.mu, found.d_theta)]
            return found.mu.like(parts[0]), theta.like(parts[1])

        found = task.tables.map(example)
        forward = task.tables.marginal_tensors([mu for mu, _ in found])
        return None, None, None, *forward, *task.tables.all_tensors([second for _, second in found])


def refuse_at_convergence(strategy: Gradient | None) -> None:
    """Refuse a second derivative of what is only approximately a first one."""
    if strategy is not None and strategy.at_convergence:
        raise InputError(f"{strategy.name} has no second derivative; use gradient='truncated' or exact inference.")


def pick_strategy(method: Inference, strategy: Gradient | None) -> Gradient:
    """Return the strategy for marginals, refused where it cannot go through the method."""
    found = Truncated() if strategy is None or isinstance(method, ExactInference) else strategy
    found.check(method)
    return found


def _surely_fine(u: np.ndarray, f: np.ndarray) -> bool:
    """Whether potentials are finite and not huge: judged by their sum of squares, which either would make huge or NaN."""
    return bool(_sum_of_squares(u, f) < (1e37 if u.dtype == np.float32 else 1e300))


@kernel
def _sum_of_squares(x, y):
    total = x.dtype.type(0)
    for k in range(len(x)):
        total += x[k] * x[k]
    for k in range(len(y)):
        total += y[k] * y[k]
    return total


def _vectors(tables: Tables, tensors: Sequence[torch.Tensor | None]) -> list[np.ndarray]:
    """Return one vector per example, laid out as by ``Potentials.vector``."""
    if tables.kinds is None:
        return [part.vector() for part in _adjoints(tables, tensors, zeros=True)]
    half = len(tables.counts)
    out = []
    for graph, kinds, u, f in zip(
        tables.graphs, tables.kinds, tables.rows(tensors[:half]), tables.rows(tensors[half:]), strict=True
    ):
        n_unary, n_numbers = table_sizes(graph)
        if kinds is not None:
            n_numbers = sum(len(kind.vector()) for kind in kinds)
        out.append(np.concatenate([np.zeros(n_unary) if u is None else u, np.zeros(n_numbers) if f is None else f]))
    return out


def _adjoints(tables: Tables, tensors: Sequence[torch.Tensor | None], zeros: bool = False) -> list[Potentials]:
    """Return adjoints; factor tables that nobody uses are left empty, or filled with ``zeros``."""
    half = len(tables.counts)
    dtype = next(t for t in tensors if t is not None).numpy().dtype
    out = []
    for graph, u, f in zip(tables.graphs, tables.rows(tensors[:half]), tables.rows(tensors[half:]), strict=True):
        n_unary, n_table = table_sizes(graph)
        u = np.zeros(n_unary, dtype) if u is None else np.ascontiguousarray(u)
        f = np.zeros(n_table if zeros else 0, dtype) if f is None else np.ascontiguousarray(f)
        out.append(Potentials.from_flat(graph, u, f))
    return out


def table_sizes(graph: Graph) -> tuple[int, int]:
    """Return the numbers of all unary and of all factor tables."""
    if graph.n_labels is not None and (graph.arity is not None or graph.n_factors == 0):
        return graph.n_variables * graph.n_labels, graph.n_factors * graph.n_labels ** (graph.arity or 2)
    return int(graph.layout.var_ptr[-1]), int(graph.layout.table_ptr[-1])
