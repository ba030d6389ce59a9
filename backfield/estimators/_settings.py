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

from backfield.constraints import (
    Table,
    check,
    choice,
    exactly,
    flag,
    functions,
    instance,
    numbers,
    optional,
    pair,
    path,
    precision,
    real,
    whole,
)
from backfield.decoders import Decoder
from backfield.energies import Energy, Network
from backfield.energies.network import is_module
from backfield.energies.oracle_backed import OracleEnergy
from backfield.errors import InputError
from backfield.estimators.classifier import Classifier
from backfield.inference import Inference
from backfield.inference.base import IterativeInference
from backfield.learners.lbfgs import LBFGS
from backfield.learners.owlqn import OWLQN
from backfield.objectives import Objective, Setting, get_objective, jgmt_alias, make_setting
from backfield.registry import Component, find_room, get, parse
from backfield.structures import Structure

#: Labels that ``n_labels`` may ask for; your own graphs may have more.
MAX_LABELS = 100_000
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

#: Sweeps that are tried where nobody gives their number, and what is taken without a trial.
SWEEPS, _USUAL = (5, 10, 20), 10


_PART = (instance("a spec such as 'name' or 'name(key=value)', or a part", str, Component),)
#: What the parameters of an estimator may be; specs are looked up, and checked, where they are used.
PARAMETERS: Table = {
    "inference": _PART,
    "loss": _PART,
    "gradient": (*_PART, optional),
    "learner": _PART,
    "decoder": _PART,
    "fit_intercept": (flag,),
    "n_labels": (whole(1, MAX_LABELS), optional),
    "dtype": (precision("float32", "float64"),),
    "n_jobs": (whole(1), exactly(-1), optional),
    "random_state": (whole(0), optional),
    "verbose": (whole(0), flag),
    "start": (choice("independent", "zero", "random"), numbers("finite weights, as weights_ of such a model")),
    "class_weight": (optional, choice("balanced"), instance("a dict of weights by class", dict)),
    "guard": (choice("auto", "labels"), flag),
}
#: What may be said to ``fit``.
FIT: Table = {
    "checkpoint": (path, optional),
    "resume": (flag,),
    "checkpoint_seconds": (real(0),),
    "checkpoint_iterations": (whole(1),),
    "callbacks": (functions,),
    "validation": (pair, optional),
    "n_chunks": (whole(1, 2**20),),
    "sample_weight": (numbers("numbers >= 0, one for each example"), optional),
}


@dataclass(frozen=True)
class Settings:
    """Parameters by their names; see :class:`backfield.GridCRF`."""

    params: dict[str, Any]

    def __post_init__(self) -> None:
        check(self.params, PARAMETERS)

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

    # ---- what a default fit decides ----

    def resolved(self, acyclic: bool) -> Settings:
        """Return settings without ``inference="auto"``: exact where graphs have no cycles, else a number of sweeps."""
        chosen = self.open_inference and self.params["inference"] == "auto"
        guard = self.params["guard"]
        params = self.params | {"guard": chosen if guard == "auto" else guard}
        if chosen and acyclic:
            params |= {"inference": "exact", "gradient": None if params["gradient"] == "truncated" else params["gradient"]}
        elif chosen:
            params |= {"inference": repr(part_of("inference", "auto"))}
        return Settings(params)

    @property
    def open_inference(self) -> bool:
        """Whether the fit chooses the inference, or its sweeps."""
        alias = jgmt_alias(self.params["loss"])
        named = alias is not None and alias.inference is not None
        return not named and (self.params["inference"] == "auto" or bool(self.sweep_candidates))

    @property
    def sweep_candidates(self) -> tuple[int, ...]:
        """Numbers of sweeps of which the fit chooses one; none where there is nothing to choose."""
        part = self.inference
        return SWEEPS if isinstance(part, IterativeInference) and part.n_iter == "auto" else ()

    def with_sweeps(self, n_iter: int | None) -> Settings:
        """Return settings with this number of sweeps where it is open; None: the usual one."""
        if not self.sweep_candidates:
            return self
        return Settings(self.params | {"inference": repr(self.inference.replace(n_iter=n_iter or _USUAL))})

    @property
    def guarded(self) -> bool:
        """Whether held-out labels say how strongly edges enter."""
        return self.params["guard"] is True

    @property
    def open_ridge(self) -> bool:
        """Whether held-out labels may ask for a stronger ridge; before the guard is resolved."""
        return isinstance(self.params["l2"], str) and self.params["guard"] is not False

    @property
    def can_select(self) -> bool:
        """Whether learning on a part and judging by the rest is possible: a value that falls, from a start of ours."""
        learner, objective = self.learner, self.objective
        starts = isinstance(self.params["start"], str) and not (learner.own_start or learner.uses_oracles)
        return starts and objective.integrable and objective.needs_inference

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
            raise InputError(f"l1 must be a finite number >= 0, received {l1!r}.")
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
        """Precision of the computation."""
        return np.dtype(self.params["dtype"]).name

    def energy(self, kind: str) -> Energy:
        """Return a new energy of ``unary`` or ``pairwise``: an oracle's function is kept in it."""
        spec = self.params[kind]
        if isinstance(spec, Classifier):
            spec = "linear"
        learner = self.learner
        if learner.uses_oracles:
            return OracleEnergy(get("oracles", spec), learner.eps)
        part = part_of(kind, spec)
        if isinstance(part, Network):
            return part.bind()
        if not isinstance(part, Energy):
            raise InputError(f"{kind}={part!r} is an oracle; it needs learner='oracle_descent'.")
        return part

    @property
    def seed(self) -> int:
        """Random seed."""
        return int(self.params["random_state"] or 0)

    @property
    def n_jobs(self) -> int:
        """Threads over examples."""
        jobs = self.params["n_jobs"]
        return (os.cpu_count() or 1) if jobs in (-1, None) else int(jobs)


def part_of(parameter: str, spec: Any) -> Component:
    """Return the part that a parameter names, from whichever of its rooms has it."""
    if isinstance(spec, Component):
        return spec
    rooms = ROOMS[parameter]
    if parameter == "inference" and spec == "auto":
        spec = "tree_reweighted(n_iter='auto')"  # where graphs have cycles
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
        raise InputError(
            f"l1={l1:g} needs the learner 'lbfgs', received {learner!r}; owlqn takes its own l1, others have none."
        )
    return OWLQN(l1, learner.max_iter, learner.tol, learner.history, learner.max_evaluations, learner.patience)
