"""Errors that name the example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backfield.errors import InputError


@contextmanager
def located(number: int) -> Iterator[None]:
    """Put the number of the example in front of what is wrong with it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"example {number}: {error}") from error
