"""Chunks of examples that keep a state from one step to the next: in threads here, or on the workers of a cluster.

A chunk is made once, where its examples are. Its methods are of two kinds: ``(state, *arguments) -> answer`` asks, and
``(state, *arguments) -> (state, answer)`` moves. They are given as functions of the class, ``Chunk.size``. Answers are
added along the tree, so they have the same bytes everywhere. States stay where the chunks are and are never changed in
place: a worker that dies takes nothing with it, as Dask recreates its chunks elsewhere and repeats every step since the
states were last sent out.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from backfield.training.execution.cluster import Shared, clear_errors, one_thread
from backfield.training.execution.threads import Node, chunk_bounds, join, sum_over_chunks, total

#: Bytes of arguments, and steps, after which states are collected and sent out again; until then Dask remembers all of them.
REMEMBERED_BYTES, REMEMBERED_STEPS = 1 << 26, 50

Make = Callable[[Any, np.ndarray, Any], Any]
Add = Callable[[Any, Any], Any]
#: A method of the class of the chunks: (chunk, state, *arguments) -> what it answers.
Method = Callable[..., Any]


class Resident(Protocol):
    """All chunks of the examples."""

    def ask(self, method: Method, add: Add, *arguments: Any) -> Any:
        """Return the sum of ``method(chunk, state, *arguments)``."""

    def move(self, method: Method, add: Add, each: list[Any] | None, *arguments: Any) -> Any:
        """Let ``method(chunk, state, own, *arguments)`` give the next states; ``each`` holds what is a chunk's own.

        Returns the sum of the answers.
        """

    def later(self, method: Method, add: Add) -> Callable[[], Any]:
        """Return what gives, at any time, what ``ask(method, add)`` would give now."""


class Here:
    """Chunks in this process, made by ``make(task, numbers, plan)``."""

    def __init__(self, problem: Any, make: Make, plan: Any, n_chunks: int) -> None:
        self.n_jobs = problem.n_jobs
        self.chunks = [make(problem.task, np.arange(a, b), plan) for a, b in chunk_bounds(problem.n_examples, n_chunks)]
        self._states: list[Any] = [None] * len(self.chunks)

    def ask(self, method: Method, add: Add, *arguments: Any) -> Any:
        """Return the sum of ``method(chunk, state, *arguments)``."""
        return self._ask(self._states, method, add, *arguments)

    def _ask(self, states: list[Any], method: Method, add: Add, *arguments: Any) -> Any:
        def answer(c: int, _: int) -> Any:
            return method(self.chunks[c], states[c], *arguments)

        return sum_over_chunks(answer, len(self.chunks), self.n_jobs, add, len(self.chunks))

    def move(self, method: Method, add: Add, each: list[Any] | None, *arguments: Any) -> Any:
        """Let a method give the next states."""
        after = list(self._states)

        def step(c: int, _: int) -> Any:
            own = None if each is None else each[c]
            after[c], answer = method(self.chunks[c], self._states[c], own, *arguments)
            return answer

        found = sum_over_chunks(step, len(self.chunks), self.n_jobs, add, len(self.chunks))
        self._states = after
        return found

    def later(self, method: Method, add: Add) -> Callable[[], Any]:
        """Return what gives what ``ask(method, add)`` would give now."""
        return partial(self._ask, self._states, method, add)


class There:
    """Chunks on the workers that share the problem: a group of neighbours for each thread that there is at the start."""

    def __init__(self, shared: Shared, make: Make, plan: Any, n_chunks: int) -> None:
        self.cluster = shared.cluster
        tasks = shared.tasks(None, n_chunks)
        self.workers = [worker for worker, _, _ in tasks]
        self.parts = [[c for c, _ in parts] for _, parts, _ in tasks]
        count = len(tasks)
        columns = [[shared.object] * count, [parts for _, parts, _ in tasks], [blocks for *_, blocks in tasks]]
        self.chunks = self._send(_make, [*columns, [make] * count, [plan] * count])
        self._states: list[Any] = [[None] * len(parts) for parts in self.parts]
        self._bytes = self._steps = 0

    def ask(self, method: Method, add: Add, *arguments: Any) -> Any:
        """Return the sum of ``method(chunk, state, *arguments)``."""
        return self._ask(self._states, method, add, *arguments)

    def _ask(self, states: list[Any], method: Method, add: Add, *arguments: Any) -> Any:
        jobs = [(method, add, arguments)] * len(self.parts)
        return self._total(self._send(_asked, [self.chunks, states, self.parts, jobs]), add)

    def move(self, method: Method, add: Add, each: list[Any] | None, *arguments: Any) -> Any:
        """Let a method give the next states."""
        own = [None if each is None else [each[c] for c in parts] for parts in self.parts]
        sent = len(pickle.dumps((own, arguments), protocol=5))
        if self._bytes + sent > REMEMBERED_BYTES or self._steps >= REMEMBERED_STEPS:
            kept = self._gather(self._states)
            self._states = self._send(pickle.loads, [[pickle.dumps(state, protocol=5) for state in kept]])
            self._bytes = self._steps = 0
        self._bytes, self._steps = self._bytes + sent, self._steps + 1
        jobs = [(method, add, arguments)] * len(self.parts)
        moved = self._send(_moved, [self.chunks, self._states, self.parts, own, jobs])
        self._states = self._send(_first, [moved])
        return self._total(self._send(_second, [moved]), add)

    def later(self, method: Method, add: Add) -> Callable[[], Any]:
        """Return what gives what ``ask(method, add)`` would give now; workers keep the states for it."""
        return partial(self._ask, self._states, method, add)

    def _total(self, futures: list[Any], add: Add) -> Any:
        nodes = [node for found in self._gather(futures) for node in found]
        return total(join(nodes, add), add)

    def _send(self, function: Callable[..., Any], columns: list[Any]) -> list[Any]:
        with clear_errors(self.cluster):
            return self.cluster.send(function, columns, self.workers)

    def _gather(self, futures: list[Any]) -> list[Any]:
        with clear_errors(self.cluster):
            return self.cluster.gather(futures)


def _make(evaluator: Any, parts: list[tuple[int, Any]], blocks: Any, make: Make, plan: Any) -> list[Any]:
    if blocks is not None:
        evaluator = evaluator.with_blocks(blocks)
    return [make(evaluator.task, np.asarray(numbers), plan) for _, numbers in parts]


def _asked(chunks: list[Any], states: list[Any], parts: list[int], job: Any) -> list[Node[Any]]:
    method, add, arguments = job
    with one_thread():
        answers = (method(chunk, state, *arguments) for chunk, state in zip(chunks, states, strict=True))
        return join((Node(c, 0, answer) for c, answer in zip(parts, answers, strict=True)), add)


def _moved(
    chunks: list[Any], states: list[Any], parts: list[int], each: list[Any] | None, job: Any
) -> tuple[list[Any], list[Node[Any]]]:
    method, add, arguments = job
    own = [None] * len(chunks) if each is None else each
    after, nodes = [], []
    with one_thread():
        for chunk, state, c, mine in zip(chunks, states, parts, own, strict=True):
            moved, answer = method(chunk, state, mine, *arguments)
            after.append(moved)
            nodes.append(Node(c, 0, answer))
        return after, join(nodes, add)


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]
