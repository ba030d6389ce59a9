"""What fit, predict and evaluate share: options to estimators, data to predictions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import numpy as np

    from backfield.data.format import Data, Preprocessing

#: Parameters of an estimator that hold specs or numbers of the user's, in the order in which they are shown.
SHOWN = ("inference", "loss", "gradient", "learner", "unary", "pairwise", "decoder", "l2", "dtype", "random_state")


Force = Annotated[bool, typer.Option("--force", help="Replace files of other kinds, too.")]
CLUSTER_HELP = "Where to compute: local:N processes, or a Dask scheduler at tcp://host:8786 or tls://..."


class Predictions(NamedTuple):
    """Labels and marginals by the number of the example, all or some of them, and the seconds that all took."""

    labels: Any
    probabilities: Any
    seconds: float


def ridge(l2: str | None) -> float | str | None:
    """Return --l2 as an estimator takes it."""
    from backfield.errors import InputError

    try:
        return l2 if l2 in (None, "auto") else float(l2)
    except ValueError:
        raise InputError(f"--l2 takes a number or auto, received {l2!r}.") from None


def load_model(path: Path) -> tuple[Any, Preprocessing | None]:
    """Read a model, and how its features are made if it says so."""
    import backfield as bf
    from backfield.data.format import Preprocessing

    model = bf.load(path)
    made = model.preprocessing_
    return model, None if made is None else Preprocessing.from_json(made)


def read_for(model: Any, made: Preprocessing | None, path: Path, with_labels: bool, lazy: bool = False) -> tuple[Data, Any]:
    """Read data for a model and make its features; ``lazy``: of images one at a time, when they are asked for."""
    from backfield.data.kinds import lazy_inputs
    from backfield.data.sequences import is_lazy
    from backfield.data.token_files import SENTENCES
    from backfield.errors import InputError
    from backfield.structures.reading import choose_preprocessing, other_unit, read_data

    structure = model.structure_
    other = other_unit(path, structure)
    if other is not None:
        raise InputError(f"{path} holds {other}s; this model expects {structure.unit[0]}s.")
    n_columns, positive = (None, None) if made is None else (made.n_columns, made.positive)
    data = read_data(path, with_labels, n_columns, lazy, repr(structure), positive)
    if made is None:
        made = choose_preprocessing(data)
    elif data.format.name != "packed" and (made.format in SENTENCES) != (data.format.name in SENTENCES):
        raise InputError(
            f"{path}: the model was trained on {made.format}; this is another form of data ({data.format.name})."
        )
    return data, lazy_inputs(data, made) if lazy and is_lazy(data.inputs) and data.preprocessing is None else made(data)


def predict_both(model: Any, X: Any, cluster: str | None = None, tile: int | None = None) -> Predictions:
    """Return labels and marginals."""
    from backfield.kernels.compiling import clock

    start = clock()
    found = list(predicted(model, X, cluster, tile))
    return Predictions([labels for labels, _ in found], [p for _, p in found], clock() - start)


def predicted(
    model: Any, X: Any, cluster: str | None = None, tile: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield labels and marginals of each example as they come; decoders that give no labels give the likeliest here."""
    with quiet_cluster(cluster):
        for labels, p in model.predict_each(X, cluster=cluster, tile=tile):
            yield (labels if labels.shape == p.shape[:-1] else model.classes_[p.argmax(axis=-1)]), p


@contextmanager
def quiet_cluster(cluster: str | None) -> Iterator[None]:
    """Keep Dask's log off standard error, where an error is one line."""
    if cluster is None:
        yield
        return
    import logging

    names = ("", ".client", ".core", ".comm", ".nanny", ".worker")
    loggers = [logging.getLogger(f"distributed{name}") for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def settings_of(model: Any, made: Preprocessing | None = None) -> dict[str, str]:
    """Return what a report says about a model."""
    shown = {key: str(value) for key, value in model.get_params(deep=False).items() if key in SHOWN and value is not None}
    if model.inference_ is not None:
        shown["inference"] = f"{model.inference_}, chosen by the fit"
    for key in ("features", "edges"):
        if made is not None and getattr(made, key):
            shown[key] = getattr(made, key)
    return {"estimator": type(model).__name__} | shown | {"weights": f"{len(model.weights_):,}"}
