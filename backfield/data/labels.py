"""Labels as people write them: numbers or texts, with -1 or "" where a label is hidden."""

from __future__ import annotations

import numpy as np


def is_known(labels: np.ndarray) -> np.ndarray:
    """Return which labels are not hidden."""
    return labels != ("" if labels.dtype.kind == "U" else -1)
