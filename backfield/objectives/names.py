"""Names of JGMT, the Matlab toolbox of [D13], in the place of a loss: they say loss, gradient and inference at once.

    trunc_LOSS_METHOD_SWEEPS    truncated fitting         trunc_cl_trw_5      trunc_em_trw_10
    pert_LOSS_METHOD_TOL        perturbation              pert_ul_trw_1e5     pert/4_ul_trw_1e-5   (4-sided)
    bbp_LOSS_METHOD_TOL         back belief propagation   bbp_ul_mnf_1e-5
    em_METHOD_TOL               surrogate EM              em_mnf_1e5          em_trw/mnf_1e-5      (clamped by mean field)
    pseudo, piecewise

LOSS is ul, cl (univariate, clique logistic), uquad, cquad (quadratic) or, after ``trunc``, em. METHOD is trw, trwpll
(several threads there; threads are ``n_jobs`` here) or mnf. A tolerance of 1e5 means 1e-5, as there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from backfield.errors import InputError

LOSSES = {
    "ul": "univariate_logistic",
    "cl": "clique_logistic",
    "uquad": "univariate_quadratic",
    "cquad": "clique_quadratic",
    "em": "surrogate_likelihood",
}
METHODS = {"trw": "tree_reweighted", "trwpll": "tree_reweighted", "mnf": "mean_field"}
_KIND = re.compile(r"(trunc|bbp|pert(?:/\d+)?|em)_")
_SAFETY = 1000  # sweeps after which inference stops where it does not converge


class Alias(NamedTuple):
    """What a name of JGMT means here."""

    loss: str
    inference: str | None
    gradient: str | None


def jgmt_meaning(loss: str) -> Alias | None:
    """Return the meaning of a JGMT name; None where it is none, InputError where it is a wrong one."""
    if loss == "pseudo":  # "piecewise" has the same name here
        return Alias("pseudolikelihood", None, None)
    if not _KIND.match(loss):
        return None
    kind, *rest = loss.split("_")
    name = "em" if kind == "em" else rest.pop(0) if rest else ""
    if len(rest) != 2 or name not in LOSSES or (name == "em" and kind not in ("em", "trunc")):
        raise InputError(
            f"cannot read {loss!r} as a loss of JGMT; they look like trunc_cl_trw_5, pert_ul_trw_1e5, em_mnf_1e5."
        )
    methods = rest[0].split("/")
    if any(method not in METHODS for method in methods) or len(methods) > (2 if name == "em" else 1):
        raise InputError(f"{loss!r} names the inference {rest[0]!r}; known are {', '.join(METHODS)}.")
    settings = _iterations(loss, kind, rest[1])
    inference = f"{METHODS[methods[0]]}({settings})"
    meaning = LOSSES[name]
    if len(methods) == 2:
        meaning = f'surrogate_likelihood(clamped="{METHODS[methods[1]]}({settings})")'
    gradients = {"trunc": "truncated", "bbp": "backpropagation", "em": None, "pert": "perturbation"}
    gradient = gradients.get(kind) if "/" not in kind else f"perturbation(sides={int(kind.split('/')[1])})"
    return Alias(meaning, inference, gradient)


def _iterations(loss: str, kind: str, text: str) -> str:
    """Return the settings that a number of sweeps, or a tolerance, stands for."""
    try:
        number = float(text)
    except ValueError as error:
        raise InputError(f"{loss!r} must end in a number, received {text!r}.") from error
    if kind == "trunc":
        if number != int(number) or number < 0:
            raise InputError(f"{loss!r} must end in a number of sweeps, received {text!r}.")
        return f"n_iter={int(number)}"
    if not number > 0:
        raise InputError(f"{loss!r} must end in a tolerance, received {text!r}.")
    return f"n_iter={_SAFETY}, tol={float(f'{1 / number:.6g}') if number > 1 else number!r}"
