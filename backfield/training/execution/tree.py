"""The fixed binary tree over the numbers of chunks, along which sums of chunks are added.

A node (start, height) is the sum of chunks start .. start + 2^height - 1, start a multiple of 2^height; at the right end,
where the number of chunks is no power of two, the nodes that are left are added from the right. Which chunks are computed
where changes nothing: whoever holds both children of a node adds them, and the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Node(NamedTuple, Generic[T]):
    """The sum of 2^height chunks from ``start`` on."""

    start: int
    height: int
    value: T


def join(nodes: Iterable[Node[T]], add: Callable[[T, T], T]) -> list[Node[T]]:
    """Add nodes, given in rising order, as far as the tree allows, as they come."""
    stack: list[Node[T]] = []
    for node in nodes:
        while stack and _are_siblings(stack[-1], node):
            left = stack.pop()
            node = Node(left.start, node.height + 1, add(left.value, node.value))
        stack.append(node)
    return stack


def _are_siblings(left: Node[T], right: Node[T]) -> bool:
    size = 1 << left.height
    return left.height == right.height and left.start + size == right.start and left.start % (2 * size) == 0


def total(nodes: list[Node[T]], add: Callable[[T, T], T]) -> T:
    """Return the sum of all chunks from nodes that are joined."""
    value = nodes[-1].value
    for node in nodes[-2::-1]:
        value = add(node.value, value)
    return value
