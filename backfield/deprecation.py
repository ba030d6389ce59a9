"""How public names go away: they warn for two releases, and say what to use."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(*, since: str, until: str, instead: str) -> Callable[[F], F]:
    """Mark a function or method that will be gone: calls warn once per place, by a ``FutureWarning`` that users see.

    Parameters
    ----------
    since, until : str
        The version that first warns, and the one without the name.
    instead : str
        What to write: ``"Graph.grid(neighbours=8)"``.
    """

    def mark(function: F) -> F:
        text = f"{function.__qualname__} is deprecated since {since} and will be removed in {until}; use {instead}."

        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(text, FutureWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return mark
