"""The parameters of an estimator as parts: what it says in words, looked up where it is used.

Parameters that are specs are seen through: ``inference__n_iter`` reads and rewrites ``inference="loopy_bp(n_iter=5)"``.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.decoders import Decoder
from backfield.energies import Energy, Network
from backfield.energies.network import is_module
from backfield.errors import InputError
from backfield.estimators.classifier import Classifier
from backfield.inference import Inference
from backfield.learners.lbfgs import LBFGS
from backfield.learners.oracle_descent import oracle_energy
from backfield.learners.owlqn import OWLQN
from backfield.objectives import Objective, Setting, get_objective, jgmt_alias, make_setting
from backfield.registry import Component, find_room, get, parse
from backfield.structures import Structure

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


@dataclass(frozen=True)
class Settings:
    """Parameters by their names; see :class:`backfield.GridCRF`."""

    params: dict[str, Any]

    @property
    def structure(self) -> Structure:
        """The form of the data."""
        return part_of("structure", self.params["structure"])  # type: ignore[return-value]

    @property
    def inference(self) -> Inference:
        """What is trained through and predicts: that of the loss, where its name brings one."""
        alias = jgmt_alias(self.params["loss"])
        spec = self.params["inference"] if alias is None or alias.inference is None else alias.inference
        return part_of("inference", spec)  # type: ignore[return-value]

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return get_objective(self.params["loss"])

    @property
    def setting(self) -> Setting:
        """How the objective goes through inference."""
        objective, alias = self.objective, jgmt_alias(self.params["loss"])
        gradient = (self.params["gradient"] if alias is None else alias.gradient) if objective.needs_inference else None
        return make_setting(objective, self.inference, gradient, self.seed)

    @property
    def learner(self) -> Any:
        """What moves the weights."""
        learner = part_of("learner", self.params["learner"])
        l1 = self.params["l1"]
        if isinstance(l1, bool) or not isinstance(l1, int | float | np.number) or not 0 <= l1 < math.inf:
            raise InputError(f"l1 must be a finite number >= 0, got {l1!r}.")
        return _with_l1(learner, float(l1)) if l1 else learner

    @property
    def decoder(self) -> Decoder:
        """What makes predictions of marginals or potentials."""
        return part_of("decoder", self.params["decoder"])  # type: ignore[return-value]

    @property
    def classifier(self) -> Classifier | None:
        """The classifier below the field, if there is one."""
        unary = self.params["unary"]
        return unary if isinstance(unary, Classifier) else None

    @property
    def dtype(self) -> str:
        """Type of numbers to compute in."""
        return self.params["dtype"]

    def energy(self, kind: str) -> Energy:
        """Return a new energy of ``unary`` or ``pairwise``: an oracle's function is kept in it."""
        spec = self.params[kind]
        if isinstance(spec, Classifier):
            spec = "linear"
        learner = self.learner
        if learner.uses_oracles:
            return oracle_energy(spec, learner.eps)
        part = part_of(kind, spec)
        if isinstance(part, Network):
            return part.bind()
        if not isinstance(part, Energy):
            raise InputError(f"{kind}={part!r} is an oracle; it needs learner='oracle_descent'.")
        return part

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        seed = 0 if self.params["random_state"] is None else self.params["random_state"]
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"random_state must be a whole number >= 0 or None, got {seed!r}.")
        return int(seed)

    @property
    def n_jobs(self) -> int:
        """Threads over examples."""
        jobs = self.params["n_jobs"]
        if jobs in (-1, None):
            return os.cpu_count() or 1
        if isinstance(jobs, bool) or not isinstance(jobs, int | np.integer) or jobs < 1:
            raise InputError(f"n_jobs must be a whole number >= 1, or -1 for all cores; got {jobs!r}.")
        return int(jobs)


def part_of(parameter: str, spec: Any) -> Component:
    """Return the part that a parameter names, from whichever of its rooms has it."""
    if isinstance(spec, Component):
        return spec
    rooms = ROOMS[parameter]
    alias = jgmt_alias(spec) if parameter == "loss" else None
    if alias is not None:
        spec = alias.loss
    if isinstance(spec, str):
        return get(find_room(parse(spec)[0], rooms), spec)
    return Network(spec) if "energies" in rooms and is_module(spec) else get(rooms[0], spec)


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


def _with_l1(learner: Any, l1: float) -> OWLQN:
    """Return OWL-QN with the parameters of L-BFGS."""
    if type(learner) is not LBFGS:
        raise InputError(f"l1={l1:g} needs the learner 'lbfgs', got {learner!r}; owlqn takes its own l1, others have none.")
    return OWLQN(l1, learner.max_iter, learner.tol, learner.history, learner.max_evaluations, learner.patience)
