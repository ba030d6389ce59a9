"""The labels of a model: classes <-> positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.data.labels import is_known
from backfield.errors import InputError


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes in order; ``fixed`` where the graphs of X say which labels a variable has, and labels are positions."""

    values: np.ndarray
    fixed: bool = False

    @classmethod
    def learn(cls, labels: list[np.ndarray]) -> Classes:
        """Return the classes that occur in labels; a mask counts them."""
        masks = [each.shape[1] for each in labels if each.ndim == 2]
        if masks:
            return cls(np.arange(max(masks)))
        seen = np.unique(np.concatenate([np.unique(each) for each in labels]))
        seen = seen[seen >= 0] if seen.dtype.kind in "iu" else seen[seen != ""]
        if len(seen) == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")
        return cls(seen if len(seen) > 1 else np.union1d(seen, seen + 1 if seen.dtype.kind in "iu" else seen))

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, labels: np.ndarray) -> np.ndarray:
        """Return labels as positions, -1 = hidden; masks pass."""
        if labels.ndim == 2 or self.fixed:
            return labels
        hidden = ~is_known(labels)
        order = np.argsort(self.values)  # models of other programs have an order of their own
        place = np.searchsorted(self.values, labels, sorter=order)
        position = order[np.minimum(place, len(self.values) - 1)]
        unknown = np.flatnonzero((self.values[position] != labels) & ~hidden)
        if len(unknown):
            shown = ", ".join(str(c) for c in self.values[:10]) + (", ..." if len(self.values) > 10 else "")
            raise InputError(
                f"the label {labels[unknown[0]].item()!r} is not among the classes {shown}; -1 means don't care."
            )
        return np.where(hidden, -1, position)

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels that are classes; others are refused with their example."""
        return labels[np.isin(labels, self.values)] if labels.ndim == 1 else labels
