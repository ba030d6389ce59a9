"""Parameters that are specs, seen through: ``inference__n_iter`` reads and rewrites ``inference="loopy_bp(n_iter=5)"``."""

from __future__ import annotations

import dataclasses
from typing import Any

from sklearn.base import BaseEstimator

from backfield.energies import Network
from backfield.energies.network import is_module
from backfield.errors import InputError
from backfield.objectives import jgmt_alias
from backfield.registry import Component, find_room, get, parse

#: Which rooms a parameter may name a part of.
ROOMS = {
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


class SpecParams(BaseEstimator):
    """scikit-learn's parameters, with the parameters of parts nested below the specs that name them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters; with ``deep`` also those of the parts."""
        params = super().get_params(deep=False)
        if deep:
            for key in ROOMS:
                value = params.get(key)
                if isinstance(value, str | Component):
                    part = part_of(key, value)
                    for field in dataclasses.fields(part):  # type: ignore[arg-type]
                        params[f"{key}__{field.name}"] = getattr(part, field.name)
                elif hasattr(value, "get_params"):
                    params.update({f"{key}__{name}": inner for name, inner in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> SpecParams:
        """Set parameters; those of parts rewrite the spec, and a spec given as a string stays one."""
        own = super().get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            head, _, tail = key.partition("__")
            if head not in own:
                raise InputError(f"{type(self).__name__} has no parameter {head!r}; it takes {', '.join(own)}.")
            if tail:
                nested.setdefault(head, {})[tail] = value
            else:
                setattr(self, head, value)
        for head, changes in nested.items():
            value = getattr(self, head)
            if hasattr(value, "set_params"):
                value.set_params(**changes)
                continue
            part = part_of(head, value).replace(**changes)
            setattr(self, head, repr(part) if isinstance(value, str) else part)
        return self
