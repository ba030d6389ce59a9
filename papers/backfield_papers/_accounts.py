"""What each paper claimed, and what we found: the words beside the tables, with figures filled in from the results.

``{{loss=clique logistic, what=test error}}`` is replaced by our figure of the only row that matches and the paper's figure
beside it; ``{{times smaller: test=int-F, train=int-F}}`` by another column of that row. Text
that says where else a figure comes from is the only other place for one.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from backfield.errors import InputError

VERDICTS = ("holds", "holds in part", "does not hold here", "not run in full", "ours")


@dataclass(frozen=True)
class Account:
    """One experiment in words."""

    claim: str
    #: One of ``VERDICTS``.
    verdict: str
    found: str
    #: The data, where they are not the paper's.
    substitute: str = ""
    #: Why it does not matter that cells come from several commits.
    commits: str = ""


def _read() -> dict[str, Account]:
    text = resources.files("backfield_papers").joinpath("accounts.toml").read_text()
    return {
        name: Account(**{key: " ".join(value.split()) for key, value in fields.items()})
        for name, fields in tomllib.loads(text).items()
    }


#: Experiment -> what is said about it, from ``accounts.toml``.
ACCOUNTS = _read()


def account(name: str) -> Account:
    """Return what is said about an experiment."""
    if name not in ACCOUNTS:
        raise InputError(f"the experiment {name!r} has no account; write one in accounts.toml.")
    return ACCOUNTS[name]


def quote(text: str, rows: list[dict[str, Any]]) -> str:
    """Fill in the figures: ours, and the paper's where it prints one."""
    return re.sub(r"\{\{(?:([\w ]+): )?(.+?)\}\}", lambda match: _figure(match[1], match[2], rows), text)


def _figure(column: str | None, wanted: str, rows: list[dict[str, Any]]) -> str:
    pairs = [pair.split("=", 1) for pair in re.split(r", (?=[\w ]+=)", wanted)]
    found = [row for row in rows if all(str(row.get(key)) == value for key, value in pairs)]
    if len(found) != 1:
        raise InputError(f"{wanted!r} matches {len(found)} rows of the result; it must match one.")
    if column is not None:
        return _number(found[0][column])
    paper = found[0].get("paper")
    return _number(found[0]["ours"]) + ("" if paper is None else f" (paper {_number(paper)})")


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
