"""A process that measures rows on request: ``against`` runs one in each of two trees.

The first line that it reads is JSON with ``cases``, ``quick`` and ``repeat``; it answers with what its rows say about
themselves. Every further line is the number of a row; it answers with the figures, or with ``error``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from backfield_benchmarks.cases import Effort, Task, tasks


def main() -> None:
    """Answer until the input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anybody prints is no answer
    asked = json.loads(sys.stdin.readline())
    known = list(tasks(asked["cases"], Effort(asked["quick"], asked["repeat"])))
    _reply(replies, [task.about for task in known])
    for line in sys.stdin:
        _reply(replies, _measured(known[int(line)]))


def _measured(task: Task) -> dict[str, Any]:
    try:
        return task.measure()
    except Exception as error:  # the other rows can still be measured
        return {"error": f"{type(error).__name__}: {error}"}


def _reply(replies: TextIO, answer: Any) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
