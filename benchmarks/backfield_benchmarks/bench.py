"""Speed: the rows of all cases, held against each other and against C.

Bars are ratios within one run, since machines differ and are noisy: to the C kernels of a reference folder, or between rows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from backfield.errors import InputError
from backfield_benchmarks.bars import compare, run_reference
from backfield_benchmarks.cases import CASES, Effort, Row, tasks


def run(cases: list[str], reference: Path | None = None, quick: bool = False) -> list[Row]:
    """Return the rows of the cases asked for (all without any), compared with each other and with C."""
    check(cases)
    rows: list[Row] = []
    limits: dict[tuple[str, str], float] = {}
    run_reference(reference, limits)
    for case in cases or CASES:
        rows += [{**task.about, **task.measure()} for task in tasks([case], Effort(quick))]
        run_reference(reference, limits)  # again: the machine may have been busy before
    return compare(rows, limits)


def check(cases: list[str]) -> None:
    """Refuse cases that there are not."""
    for case in cases:
        if case not in CASES:
            raise InputError(f"there is no case {case!r}; known: {', '.join(CASES)}.")


def machine() -> Row:
    """Return what the figures depend on."""
    import numba

    return {
        "cores": os.cpu_count(),
        "cpu": numba.core.codegen.ll.get_host_cpu_name(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "numba": numba.__version__,
    }
