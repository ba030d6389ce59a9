"""Data on disk as a sequence of what an estimator takes, made one example at a time, for ``backfield pack``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from backfield.data.examples import Data
from backfield.data.preprocessing import Preprocessing


class PackedInputs(Sequence[Any]):
    """The features of each example; slices are of the same kind and small, so that they can be sent to a process."""

    def __init__(self, made: Preprocessing, data: Data) -> None:
        self.made, self.data = made, data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return PackedInputs(self.made, self.data.part(range(*index.indices(len(self)))))
        return self.made(self.data.part([index]))[0]


def source_of(data: Data) -> str:
    """Return a text that changes when the data do: sizes and times of files, or a checksum of arrays."""
    if data.format == "images":
        files = sorted(path for path in data.path.rglob("*") if path.is_file())
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        return hashlib.sha256(repr(stamps).encode()).hexdigest()
    digest = hashlib.sha256()
    for values in (data.inputs, data.labels or (), *zip(*(data.edges or []), strict=True)):
        for each in values:
            digest.update(np.ascontiguousarray(each).tobytes() if isinstance(each, np.ndarray) else repr(each).encode())
    return digest.hexdigest()
