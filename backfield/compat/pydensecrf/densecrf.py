"""``pydensecrf.densecrf``: DenseCRF and DenseCRF2D."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from backfield.constraints import checked, instance, numbers, real, whole
from backfield.errors import InputError
from backfield.graph import Graph, Kernel, Potentials
from backfield.inference.mean_field.dense import DenseEngine
from backfield.kernels.gaussian import MAX_DIMENSIONS


class KernelType(IntEnum):
    """Which parameters of a kernel pydensecrf would learn; none are learned here, and all three are the same."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """How the rows of a kernel are normalised."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType
#: Largest count: of variables, labels and iterations.
MOST = 2**31 - 1
_NORMALISATION: dict[int, str | None] = {0: None, 1: "before", 2: "after", 3: "symmetric"}


class Unary:
    """Costs of the labels of all variables: (labels, variables)."""

    def __init__(self, costs: np.ndarray) -> None:
        self.costs = costs


class ConstUnary(Unary):
    """Costs that are given."""

    def __init__(self, u: Any) -> None:
        super().__init__(_floats(u, "u"))


class LogisticUnary(Unary):
    """Costs L f of features f (features, variables)."""

    def __init__(self, L: Any, f: Any) -> None:
        super().__init__(_product(_floats(L, "L"), _floats(f, "f")))


class DenseCRF:
    """A fully connected field of ``nvar`` variables with ``nlabels`` labels each."""

    def __init__(self, nvar: int, nlabels: int) -> None:
        self._nvar, self._nlabel = _size(nvar, "nvar"), _size(nlabels, "nlabels")
        self._unary = np.zeros((self._nlabel, self._nvar), np.float32)
        self._kernels: list[Kernel] = []
        self._bound: DenseEngine | None = None

    def addPairwiseEnergy(
        self, features: Any, compat: Any, kernel: int = DIAG_KERNEL, normalization: int = NORMALIZE_SYMMETRIC
    ) -> None:
        """Add a kernel of features (d, variables), which are already divided by their bandwidths."""
        f = _floats(features, "features")
        if f.shape[1] != self._nvar:
            raise InputError(f"Bad shape for pairwise energy (Need (?, {self._nvar}), received {f.shape})")
        if f.shape[0] > MAX_DIMENSIONS:
            raise InputError(f"a lattice takes at most {MAX_DIMENSIONS} features, received {f.shape[0]}.")
        _number(kernel, "kernel", KernelType)
        self._add(np.ascontiguousarray(f.T), np.ones(f.shape[0]), compat, normalization)

    def _add(self, points: np.ndarray, sigma: np.ndarray, compat: Any, normalization: int) -> None:
        how = _number(normalization, "normalization", NormalizationType)
        d = points.shape[1]
        # Their lattice blurs with [1 2 1] / 2 and divides by 1 + 2^-d; ours has the integral of the Gaussian.
        ours = np.sqrt(d + 1) * (4 * np.pi / 3) ** (d / 2)
        weight = 1.0 if how != NO_NORMALIZATION else float(2.0 ** (d + 1) / (1 + 2.0**-d) / ours)
        options: dict[str, Any] = {"filter": "published", "self_terms": True, "directed": True, "fixed_bandwidths": True}
        self._kernels.append(
            Kernel(points, _log_potential(compat, self._nlabel), sigma, weight, _NORMALISATION[how], **options)
        )
        self._bound = None

    def setUnary(self, u: Unary) -> None:
        """Set the costs of the labels."""
        self.setUnaryEnergy(checked("u", u, instance("a ConstUnary or a LogisticUnary", Unary)).costs)

    def setUnaryEnergy(self, u: Any, f: Any = None) -> None:
        """Set the costs of the labels: (labels, variables); with ``f`` they are u f."""
        costs = _floats(u, "unary energy")
        if f is not None:
            costs = _product(costs, _floats(f, "f"))
        if costs.shape != (self._nlabel, self._nvar):
            raise InputError(f"Bad shape for unary energy (Need {(self._nlabel, self._nvar)}, received {costs.shape})")
        self._unary, self._bound = costs, None

    def inference(self, niter: int) -> np.ndarray:
        """Return Q (labels, variables) after ``niter`` parallel updates from the unary terms."""
        checked("niter", niter, whole(0, MOST))
        engine = self._engine()
        state = engine.from_unary()
        engine.sweeps(state, 0, int(niter))
        return _matrix(engine, state)

    def startInference(self) -> tuple[np.ndarray, None, None]:
        """Return Q of the unary terms, and two things that :meth:`stepInference` asks for and does not need."""
        engine = self._engine()
        return _matrix(engine, engine.from_unary()), None, None

    def stepInference(self, Q: np.ndarray, tmp1: Any = None, tmp2: Any = None) -> None:
        """Update Q in place."""
        q, engine = self._rows(checked("Q", Q, instance("the array of startInference", np.ndarray))), self._engine()
        with np.errstate(divide="ignore"):
            state = np.log(q)
        engine.sweep(state, 0)
        Q[...] = _matrix(engine, state)

    def klDivergence(self, Q: np.ndarray) -> float:
        """Return what pydensecrf calls the divergence: pairs count twice, and the constant is left out."""
        q = self._rows(Q)
        exact = q.astype(np.float64)
        pairs = sum(operator.energy(q) for operator in self._engine().operators)
        return float((exact * (np.log(np.maximum(exact, 1e-20)) + self._unary.T)).sum() - 2 * pairs)

    def _rows(self, Q: Any) -> np.ndarray:
        """Return probabilities as (variables, labels)."""
        q = _floats(Q, "Q")
        if q.shape != (self._nlabel, self._nvar) or (q < 0).any():
            raise InputError(f"Q must be probabilities of shape {(self._nlabel, self._nvar)}, received shape {q.shape}.")
        return np.ascontiguousarray(q.T)

    def _engine(self) -> DenseEngine:
        if self._bound is None:
            graph = Graph(labels=np.full(self._nvar, self._nlabel))
            self._bound = DenseEngine(Potentials(graph, np.ascontiguousarray(-self._unary.T), groups=self._kernels))
        return self._bound


class DenseCRF2D(DenseCRF):
    """A fully connected field of the pixels of an image, row by row."""

    def __init__(self, w: int, h: int, nlabels: int) -> None:
        self._w, self._h = _size(w, "w"), _size(h, "h")
        super().__init__(self._w * self._h, nlabels)

    def addPairwiseGaussian(
        self, sxy: Any, compat: Any, kernel: int = DIAG_KERNEL, normalization: int = NORMALIZE_SYMMETRIC
    ) -> None:
        """Add a kernel of positions with bandwidths ``sxy``: one number, or (x, y)."""
        _number(kernel, "kernel", KernelType)
        self._add(self._places(), _bandwidths(sxy, 2, "sxy"), compat, normalization)

    def addPairwiseBilateral(
        self,
        sxy: Any,
        srgb: Any,
        rgbim: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a kernel of positions and colours of an image (h, w, 3) of uint8."""
        _number(kernel, "kernel", KernelType)
        image = np.asarray(checked("rgbim", rgbim, numbers("an image (h, w, 3) of uint8")))
        if image.shape[:2] != (self._h, self._w):
            raise InputError(f"Bad shape for pairwise bilateral (Need {(self._h, self._w, 3)}, received {image.shape})")
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise InputError(
                "addPairwiseBilateral only works for RGB images of uint8; for others use utils.create_pairwise_bilateral "
                "and addPairwiseEnergy."
            )
        points = np.concatenate([self._places(), image.reshape(-1, 3)], axis=1, dtype=np.float32)
        sigma = np.concatenate([_bandwidths(sxy, 2, "sxy"), _bandwidths(srgb, 3, "srgb")])
        self._add(points, sigma, compat, normalization)

    def _places(self) -> np.ndarray:
        y, x = np.mgrid[: self._h, : self._w]
        return np.stack([x, y], axis=-1).reshape(-1, 2).astype(np.float32)


def _log_potential(compat: Any, n_labels: int) -> Any:
    """Return a compatibility as part of log-potentials: costs of vectors and matrices, minus costs of numbers."""
    words = f"({n_labels},) or ({n_labels}, {n_labels}) finite numbers"
    values = np.asarray(checked("compat", compat, real(), numbers(words)), dtype=np.float64)
    if values.ndim == 0:
        return float(values)
    if values.shape not in ((n_labels,), (n_labels, n_labels)) or not np.isfinite(values).all():
        raise InputError(f"compat must be a number, or {words}; received shape {values.shape}.")
    return -values if values.ndim == 1 else -(values + values.T) / 2


def _bandwidths(value: Any, count: int, name: str) -> np.ndarray:
    sigma = np.asarray(checked(name, value, real(), numbers(f"{count} positive numbers")), dtype=np.float64)
    sigma = np.full(count, sigma) if sigma.ndim == 0 else sigma
    if sigma.shape != (count,) or not ((sigma > 1e-30) & (sigma < 1e30)).all():
        raise InputError(f"{name} must be a positive number or {count}, received {value!r}.")
    return sigma


def _floats(values: Any, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(checked(name, values, numbers("a matrix of finite numbers")), dtype=np.float32)
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        raise InputError(f"{name} must be a matrix of finite numbers, received shape {array.shape}.")
    return array


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.shape[1] != b.shape[0]:
        raise InputError(f"costs of shape {a.shape} do not go with features of shape {b.shape}.")
    return np.ascontiguousarray(a @ b)


def _size(value: Any, name: str) -> int:
    return int(checked(name, value, whole(1, MOST)))


def _number(value: Any, name: str, kind: Any) -> Any:
    return kind(int(checked(name, value, whole(0, len(kind) - 1))))


def _matrix(engine: DenseEngine, state: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(engine.beliefs(state).reshape(state.shape).T)
