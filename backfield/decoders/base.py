"""What a decoder is: marginals (or theta) -> a prediction for each variable."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from backfield.graph import Potentials
from backfield.registry import Component


class Decoder(Component):
    """A rule that turns marginals, or potentials, into a prediction."""

    room: ClassVar[str] = "decoders"
    #: Looks at marginals; else at theta, and no inference is run.
    needs_marginals: ClassVar[bool] = True
    #: Looks at marginals of factors, too; else the factor tables of ``mu`` may be left empty.
    needs_factors: ClassVar[bool] = False
    #: Looks at each variable's own marginals alone, so the labels of a tile are those of the whole image.
    local: ClassVar[bool] = False

    #: What it predicts of several graphs together is what it predicts of each.
    separable: ClassVar[bool] = False
    #: Predicts labelings that have a positive probability under theta, or none; others are refused with constraints.
    keeps_constraints: ClassVar[bool] = False

    def decode(self, theta: Potentials, mu: Potentials | None, outputs: np.ndarray | None = None) -> Any:
        """Return labels (n,), or what the decoder predicts instead.

        ``outputs`` (n,) says which variables are asked for; decoders that look at all of them together leave out the others.
        """
        raise NotImplementedError
