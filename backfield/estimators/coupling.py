"""The table of learning x inference ([K05] Table 1) for any data: each row is learned once and decoded by each column.

A row is a loss or objective, ``"pseudo_marginal"``, or one with its own inference,
``"univariate_logistic @ tree_reweighted(n_iter=5)"``. A column is an inference method (the most probable label of each
variable), a MAP solver, or a decoder. Rows without their own inference learn through the first column that is one:
through what they will be judged by.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.objectives import get_objective, make_setting
from backfield.registry import find_room, get, parse
from backfield.scikit_learn import clone
from backfield.training.protocols import HasValue

#: For objectives that L-BFGS cannot follow: a direction without a value, or a value with kinks.
ASCENT = "ascent(max_iter=300)"


@dataclass(frozen=True)
class Cell:
    """One row decoded by one column: the share of wrong labels and the seconds, or why there is none."""

    learning: str
    inference: str
    error: float | None
    learning_seconds: float
    inference_seconds: float
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return asdict(self)


def column_params(spec: str) -> dict[str, Any]:
    """Return the parameters of an estimator that decode as a column says."""
    room = find_room(parse(spec)[0], ("inference", "map_solvers", "decoders"))
    if room == "inference":
        return {"inference": spec, "decoder": "max_marginal"}
    return {"decoder": spec if room == "decoders" else f"map(solver={spec!r})"}


def row_params(spec: str, through: str | None, learner: str | None) -> dict[str, Any]:
    """Return the parameters of an estimator that learn as a row says."""
    loss, _, own = (part.strip() for part in spec.partition("@"))
    objective = get_objective(loss)
    params: dict[str, Any] = {"loss": loss, "gradient": None}
    inference = own or through
    if inference is not None and objective.needs_inference:
        params["inference"] = inference
    if learner is not None:
        params["learner"] = learner
    elif not (objective.integrable and objective.smooth):
        params["learner"] = ASCENT
    return params


def coupling_table(
    estimator: Any,
    learning: Sequence[str],
    inference: Sequence[str],
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    *,
    learner: str | None = None,
    progress: Callable[[str], Any] = lambda message: None,
    look: Callable[[str, str, Any, list[Any]], Any] | None = None,
) -> list[Cell]:
    """Learn each row, decode by each column; return the cells row by row.

    Parameters
    ----------
    estimator : GridCRF, ChainCRF or GraphCRF
        Its parameters hold where rows and columns do not say otherwise; it is not fitted.
    learning, inference : specs of the rows and columns
    train, test : (X, y)
    learner : spec for all rows; by default that of the estimator, and ascent for objectives that have no smooth value
    progress : called with a line before each step
    look : called with (row, column, fitted estimator, predictions of the test data)
    """
    rows, columns = check_table(estimator, learning, inference, learner)
    cells = []
    for name, params in rows.items():
        progress(f"learning {name}")
        crf = clone(estimator).set_params(**params)
        start, reason = time.perf_counter(), ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                crf.fit(*train)
        except InputError as error:
            reason = str(error)
        seconds = time.perf_counter() - start
        for column, changes in columns.items():
            if reason:
                cells.append(Cell(name, column, None, seconds, 0.0, reason))
                continue
            progress(f"{name} decoded by {column}")
            cells.append(_cell(crf, name, column, changes, seconds, test, look))
    if all(cell.error is None for cell in cells):
        raise InputError(cells[0].reason)
    return cells


def check_table(
    estimator: Any, learning: Sequence[str], inference: Sequence[str], learner: str | None
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the parameters of rows and columns; invalid combinations raise before anything is learned."""
    if not learning or not inference:
        raise InputError("a table needs at least one --learning and one --inference.")
    columns = {spec: column_params(spec) for spec in inference}
    for changes in columns.values():
        for room in ("inference", "decoder"):
            if room in changes:
                get({"inference": "inference", "decoder": "decoders"}[room], changes[room])
    through = next((changes["inference"] for changes in columns.values() if "inference" in changes), None)
    rows = {spec: row_params(spec, through, learner) for spec in learning}
    for spec, params in rows.items():
        crf = clone(estimator).set_params(**params)
        objective = get_objective(params["loss"])
        part = get("learners", crf.learner) if isinstance(crf.learner, str) else crf.learner
        if HasValue in part.requires and not objective.integrable:
            raise InputError(f"{spec}: {part.name} needs an objective with a value; use ascent or sgd.")
        make_setting(objective, crf.inference, None)
    return rows, columns


def _cell(
    crf: Any, row: str, column: str, changes: dict[str, Any], learned: float, test: tuple[Any, Any], look: Any
) -> Cell:
    before = crf.get_params(deep=False)
    crf.set_params(**changes)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            predictions = crf.predict(test[0])
        seconds = time.perf_counter() - start
        error = _error(predictions, test[1])
        if look is not None:
            look(row, column, crf, predictions)
        return Cell(row, column, error, learned, seconds)
    except InputError as refusal:  # such as a cut of couplings that are not submodular
        return Cell(row, column, None, learned, time.perf_counter() - start, str(refusal))
    finally:
        crf.set_params(**{key: before[key] for key in changes})


def _error(predictions: list[Any], labels: Sequence[Any]) -> float:
    wrong = total = 0
    for found, wanted in zip(predictions, labels, strict=True):
        wanted = np.asarray(wanted)
        if np.shape(found) != wanted.shape:
            raise InputError("this decoder predicts probabilities, not labels; errors cannot be counted.")
        known = wanted != (-1 if wanted.dtype.kind in "iub" else "")
        wrong += int((np.asarray(found)[known] != wanted[known]).sum())
        total += int(known.sum())
    if total == 0:
        raise InputError("there is nothing to test on: all labels are hidden.")
    return wrong / total
