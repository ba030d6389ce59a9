"""What an energy is: features, w -> scores, one row per variable (or factor), one column per label (or table entry)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from backfield.registry import Component


class TiedScores(NamedTuple):
    """Scores (N, K) as sums of tables that all rows share: theta_c = sum_k s_ck T_k, see :class:`backfield.Tied`."""

    tables: np.ndarray  # (n_tables, K)
    scales: np.ndarray | None  # (N, n_tables) or one column less: the last table then enters every row once


class PreparedRows(Protocol):
    """Rows of features in the layout of their kernels; scores are padded to a width, the padding is in the bias."""

    def __len__(self) -> int: ...

    def scores(self, w: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write scores (N, width) without the bias, and return it: what is to be added to every row, -inf in the padding."""

    def add_vjp(self, d_scores: np.ndarray, d_w: np.ndarray) -> None:
        """Add the adjoint of the weights, from that of the scores (N, width)."""


class Energy(Component):
    """A function of features with weights, and its derivative with respect to the weights.

    ``features`` is (N, F), dense or CSR; ``w`` is flat; scores are (N, K) in the type of the features.
    """

    room: ClassVar[str] = "energies"
    #: Looks at all rows of an example together; on grids they come as an image (H, W, F).
    whole: ClassVar[bool] = False
    #: Scores are linear in the weights.
    linear: ClassVar[bool] = True

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return the number of weights."""
        raise NotImplementedError

    def start(self, n_features: int, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the weights to start from."""
        return np.zeros(self.n_weights(n_features, n_outputs, intercept))

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the scores (N, K)."""
        raise NotImplementedError

    def tables(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> TiedScores | None:
        """Return few tables and scales per row that give the same scores; None where scores are not of that form."""
        return None

    def tables_vjp(self, d_tables: np.ndarray) -> np.ndarray:
        """Return the adjoint of the weights, flat, from that of :meth:`tables`."""
        raise NotImplementedError

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of the weights, flat, float64; scores that are linear in them do not need ``w``."""
        raise NotImplementedError

    def prepared(self, features: Any, n_outputs: int, intercept: bool, width: int) -> PreparedRows | None:
        """Return rows that are made once and used in many evaluations, in double precision; None where there are none."""
        return None

    def in_units(self, units: np.ndarray, constant: float, n_outputs: int, intercept: bool) -> np.ndarray | None:
        """Return what each weight multiplies: the unit of its feature, or ``constant`` for an intercept.

        None where weights do not belong to single features: a ridge takes them as they are, and nobody looks for units.
        """
        return None

    def gram(self, features: Any, intercept: bool) -> np.ndarray | None:
        """Return X'X of the rows that the weights of every output multiply; None where it is not known or too large."""
        return None

    def forget(self) -> None:
        """Drop what was kept of the last scores for a :meth:`vjp` that will not come."""
