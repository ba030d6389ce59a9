"""Graphs by their size: images of one size share one graph, and what its kernels have prepared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from backfield.graph import Graph

#: Variables of the graphs that are kept when no example holds them.
KEPT_VARIABLES = 2**18


class GraphCache:
    """Graphs that are in use somewhere, and the latest ones; many sizes, seen once each, are not all kept."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Graph] = WeakValueDictionary()
        self._latest: deque[Graph] = deque()
        self._size = 0
        self._lock = Lock()

    def __reduce__(self) -> Any:
        """Pickle an empty cache: whoever unpickles it builds the graphs it needs."""
        return GraphCache, ()

    def get(self, key: Hashable, make: Callable[[], Graph]) -> Graph:
        """Return the graph of a key."""
        graph = self._known.get(key)
        if graph is not None:
            return graph
        graph = make()
        with self._lock:
            self._known[key] = graph
            self._latest.append(graph)
            self._size += graph.n_variables
            while self._size > KEPT_VARIABLES and len(self._latest) > 1:
                self._size -= self._latest.popleft().n_variables
        return graph
