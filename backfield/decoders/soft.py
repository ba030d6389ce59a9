"""The marginals themselves: a fractional prediction ([S11] §5.1, "identity")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.decoders.base import Decoder
from backfield.graph import Potentials


@dataclass(frozen=True, repr=False)
class Soft(Decoder, name="soft"):
    """The probability of each label."""

    separable: ClassVar[bool] = True
    keeps_constraints: ClassVar[bool] = True
    local: ClassVar[bool] = True

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> Any:
        """Return the marginals of the variables."""
        assert mu is not None
        return mu.unary
