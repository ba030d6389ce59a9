"""Read and write models by the ending of a file's name: .bif, .xmlbif, .xml, .uai and .fg, each also with .gz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backfield.constraints import check
from backfield.constraints import path as file_path
from backfield.data.formats._text import read_bytes
from backfield.data.formats.bif import read_bif, write_bif
from backfield.data.formats.libdai import read_fg, write_fg
from backfield.data.formats.named_tables import NamedTables
from backfield.data.formats.uai import read_uai, write_uai
from backfield.data.formats.xmlbif import read_xmlbif, write_xmlbif
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.models.build import assemble, bayes_tables
from backfield.models.naming import Variables
from backfield.models.reduced import NONE

if TYPE_CHECKING:
    from backfield.models.model import Model

#: Formats that hold names, with their readers and writers; and those that hold numbers.
NAMED = {".bif": (read_bif, write_bif), ".xmlbif": (read_xmlbif, write_xmlbif), ".xml": (read_xmlbif, write_xmlbif)}
NUMBERED = {".uai": read_uai, ".fg": read_fg}


def kind_of(path: str | Path) -> str:
    """Return the ending that says how to read a file, .gz left out."""
    check({"path": path}, {"path": (file_path,)})
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    known = [*NAMED, *NUMBERED]
    if not suffixes or suffixes[-1] not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        raise InputError(f"{path} does not end in {listed}, also with .gz, which says how to read it.")
    return suffixes[-1]


def read(path: str | Path) -> tuple[Variables, Potentials, np.ndarray]:
    """Return variables, theta, and which table is P(v | parents)."""
    try:
        return _read(path, kind_of(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error


def _read(path: str | Path, kind: str) -> tuple[Variables, Potentials, np.ndarray]:
    if kind in NAMED:
        tables = NAMED[kind][0](path)
        variables = Variables(tables.states)
        return (variables, *assemble(variables, (), tables.conditionals))
    theta = NUMBERED[kind](path)
    variables = numbered(theta)
    conditional = np.full(len(variables), NONE, dtype=np.int64)
    if kind == ".uai" and read_bytes(path).split(maxsplit=1)[0].upper() == b"BAYES":
        conditional = _or(bayes_tables(theta, conditional), conditional)
    return variables, theta, conditional


def _or(found: np.ndarray | None, other: np.ndarray) -> np.ndarray:
    return other if found is None else found


def numbered(theta: Potentials) -> Variables:
    """Return variables x0, x1, ... with states 0, 1, ..., written as strings."""
    return Variables({f"x{i}": [str(x) for x in range(count)] for i, count in enumerate(theta.graph.labels.tolist())})


def write(path: str | Path, model: Model) -> None:
    """Write a model; .uai and .fg lose the names."""
    kind = kind_of(path)
    if kind in NAMED:
        if not model.is_directed:
            raise InputError(f"{path}: {kind} holds Bayesian networks, and this model has other factors; write .uai or .fg.")
        NAMED[kind][1](_named_tables(model), path)
    elif kind == ".uai":
        priors = np.array([not model.parents(name) for name in model.names]) if model.is_directed else None
        write_uai(model.theta, path, priors)
    else:
        write_fg(model.theta, path)


def _named_tables(model: Model) -> NamedTables:
    """Return the tables of a Bayesian network with states as strings."""
    states = {name: [str(state) for state in part] for name, part in model.states.items()}
    for name, texts in states.items():
        if len(set(texts)) < len(texts):
            raise InputError(f"two states of {name!r} are written alike; a file cannot tell them apart.")
    return NamedTables(states, {name: model.conditional(name) for name in model.names})
