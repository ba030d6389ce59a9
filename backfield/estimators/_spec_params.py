"""Parameters that are specs, seen through: ``inference__n_iter`` reads and rewrites ``inference="loopy_bp(n_iter=5)"``."""

from __future__ import annotations

import dataclasses
from typing import Any

from backfield.energies import Network
from backfield.energies.network import is_module
from backfield.objectives import jgmt_alias
from backfield.registry import Component, find_room, get, parse

#: Which rooms a parameter may name a part of.
ROOMS = {
    "structure": ("structures",),
    "inference": ("inference",),
    "loss": ("losses", "objectives"),
    "gradient": ("gradients",),
    "learner": ("learners",),
    "unary": ("energies", "oracles"),
    "pairwise": ("energies", "oracles"),
    "decoder": ("decoders",),
}


def part_of(parameter: str, spec: Any) -> Component:
    """Return the part that a parameter names, from whichever of its rooms has it."""
    if isinstance(spec, Component):
        return spec
    if "energies" in ROOMS[parameter] and is_module(spec):
        return Network(spec)
    alias = jgmt_alias(spec) if parameter == "loss" else None
    if alias is not None:
        spec = alias.loss
    rooms = ROOMS[parameter]
    return get(find_room(parse(spec)[0], rooms) if isinstance(spec, str) else rooms[0], spec)


def with_parts(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters together with those of the parts that they name."""
    out = dict(params)
    for key in (key for key in ROOMS if key in params):
        value = params[key]
        if isinstance(value, str | Component):
            part = part_of(key, value)
            for field in dataclasses.fields(part):  # type: ignore[arg-type]
                out[f"{key}__{field.name}"] = getattr(part, field.name)
        elif hasattr(value, "get_params"):
            out.update({f"{key}__{name}": inner for name, inner in value.get_params().items()})
    return out


def changed_part(key: str, value: Any, changes: dict[str, Any]) -> Any:
    """Return a part, or an estimator, with other parameters; a spec given as a string stays one."""
    if hasattr(value, "set_params"):
        return value.set_params(**changes)
    part = part_of(key, value).replace(**changes)
    return repr(part) if isinstance(value, str) else part
