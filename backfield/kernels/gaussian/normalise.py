"""Kernels with normalised rows, with or without the terms of a point with itself.

    out = diag(after) K diag(before) q - [no self terms] diag(after_i K_ii before_i) q,   s = K 1

    none       before = after = 1
    symmetric  before = after = s^(-1/2)      (pydensecrf's default, with self terms)
    before     before = 1 / s                 (columns sum to one)
    after      after = 1 / s                  (rows sum to one)

s always counts the self terms. Only ``none`` and ``symmetric`` are symmetric kernels. The adjoint goes through s as well:
d_s = - s^(-3/2) (d_before + d_after) / 2 and so on, then that of K 1.
"""

from __future__ import annotations

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import kernel
from backfield.kernels.gaussian.base import Collector, Filter, check_values

#: How rows may be normalised.
NORMALISATIONS = ("none", "symmetric", "before", "after")


class Normalised:
    """A filter with normalised rows: a linear map of values (n, C) with adjoints in values and bandwidths.

    Parameters
    ----------
    base
        The filter: ``Exact``, ``Permutohedral`` or ``Separable``.
    normalise
        ``'none'``, ``'symmetric'``, ``'before'`` or ``'after'``.
    self_terms
        Whether a point counts as its own neighbour.
    """

    def __init__(self, base: Filter, normalise: str = "symmetric", *, self_terms: bool = True) -> None:
        if normalise not in NORMALISATIONS:
            raise InputError(f"normalise must be one of {', '.join(NORMALISATIONS)}, received {normalise!r}.")
        self.base, self.normalise, self.self_terms = base, normalise, self_terms
        self.n, self.dtype = base.n, base.dtype
        self._one = np.ones(self.n, self.dtype)
        self.sums = self._row_sums() if normalise != "none" else self._one
        scale = self.sums ** self.dtype.type(-0.5 if normalise == "symmetric" else -1)
        self.before = scale if normalise in ("symmetric", "before") else self._one
        self.after = scale if normalise in ("symmetric", "after") else self._one
        self._diagonal = np.zeros(0, self.dtype) if self_terms else base.diagonal()

    @property
    def symmetric(self) -> bool:
        """Whether normalisation keeps a symmetric kernel symmetric."""
        return self.normalise in ("none", "symmetric")

    @property
    def largest_self_term(self) -> float:
        """The largest diagonal entry that was taken away; 0 where self terms are kept."""
        return 0.0 if self.self_terms else float((self._diagonal * self.before * self.after).max())

    def collector(self) -> Collector:
        """Return an empty collector for :meth:`vjp`."""
        return self.base.collector()

    def filter(self, values: np.ndarray) -> np.ndarray:
        """Return the filtered values (n, C)."""
        q = check_values(values, self.n, self.dtype)
        out = np.zeros_like(q)
        self.apply(q, out)
        return out

    def apply(self, q: np.ndarray, out: np.ndarray, scale: float = 1.0) -> None:
        """Add ``scale`` times the filtered values to ``out``."""
        after = self.after * self.dtype.type(scale) if scale != 1.0 else self.after
        self.base.apply(q, self.before, after, out)
        if not self.self_terms:
            _add_rows(-self._diagonal * self.before * after, q, out)

    def transpose(self, d_out: np.ndarray, d_q: np.ndarray, scale: float = 1.0) -> None:
        """Add the adjoint of q that ``d_out`` causes to ``d_q``."""
        after = self.after * self.dtype.type(scale) if scale != 1.0 else self.after
        self.base.transpose(d_out, self.before, after, d_q)
        if not self.self_terms:
            _add_rows(-self._diagonal * self.before * after, d_out, d_q)

    def vjp(self, q: np.ndarray, d_out: np.ndarray, d_q: np.ndarray, d: Collector) -> None:
        """Do what :meth:`transpose` does, and collect what :meth:`bandwidths_vjp` needs."""
        self.base.vjp(q, d_out, self.before, self.after, d_q, d)
        if not self.self_terms:
            own = -np.einsum("ia,ia->i", q, d_out)
            _add_rows(-self._diagonal * self.before * self.after, d_out, d_q)
            d.after += own * self._diagonal * self.before
            d.before += own * self._diagonal * self.after
            d.diagonal += own * self.before * self.after

    def settle(self, d: Collector) -> None:
        """Move the adjoints of the row sums and of the diagonal to the parameters, once, after the last :meth:`vjp`."""
        if not self.self_terms:
            self.base.diagonal_vjp(d.diagonal, d)
        if self.normalise != "none":
            d_scale = (d.before if self.before is not self._one else 0) + (d.after if self.after is not self._one else 0)
            power = -0.5 if self.normalise == "symmetric" else -1.0
            d_sums = self.dtype.type(power) * d_scale * self.sums ** self.dtype.type(power - 1)
            column = self._one[:, None].copy()
            self.base.vjp(column, d_sums[:, None].copy(), self._one, self._one, np.zeros_like(column), d)
        d.before[:] = d.after[:] = d.diagonal[:] = 0

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths."""
        self.settle(d)
        return self.base.bandwidths_vjp(d)

    def _row_sums(self) -> np.ndarray:
        sums = np.zeros((self.n, 1), self.dtype)
        self.base.apply(np.ones_like(sums), self._one, self._one, sums)
        return sums[:, 0]


@kernel
def _add_rows(scale, values, out):
    for i in range(len(out)):
        for a in range(out.shape[1]):
            out[i, a] += scale[i] * values[i, a]
