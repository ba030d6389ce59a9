"""What fit, predict and evaluate share: options to estimators, data to predictions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from backfield.io import Data, Preprocessing

#: Parameters of an estimator that hold specs or numbers of the user's, in the order in which they are shown.
SHOWN = ("inference", "loss", "gradient", "learner", "unary", "pairwise", "decoder", "l2", "dtype", "random_state")


class Predictions(NamedTuple):
    """Labels and marginals of each example, and the seconds they took."""

    labels: list[np.ndarray]
    probabilities: list[np.ndarray]
    seconds: float


def load_model(path: Path) -> tuple[Any, Preprocessing | None]:
    """Read a model of images or chains, and how its features are made if it says so."""
    import backfield as bf
    from backfield.errors import InputError
    from backfield.io import Preprocessing

    model = bf.load(path)
    if not isinstance(model, bf.GridCRF | bf.ChainCRF):
        raise InputError(f"{path} holds a {type(model).__name__}; the command line takes GridCRF and ChainCRF, Python all.")
    made = getattr(model, "preprocessing_", None)
    return model, None if made is None else Preprocessing.from_json(made)


def read_for(model: Any, made: Preprocessing | None, path: Path, with_labels: bool) -> tuple[Data, list[Any]]:
    """Read data for a model and make its features."""
    import backfield as bf
    from backfield.errors import InputError
    from backfield.io import choose_preprocessing, read_data

    data = read_data(path, with_labels, None if made is None else made.n_columns)
    kind = "grid" if isinstance(model, bf.GridCRF) else "chain"
    if data.kind != kind:
        raise InputError(f"{path} holds {data.unit[0]}s; the model is one of {'images' if kind == 'grid' else 'chains'}.")
    if made is None:
        made = choose_preprocessing(data)
    elif data.format != "packed" and (made.format == "columns") != (data.format == "columns"):
        raise InputError(f"{path}: the model was trained on {made.format}; this is another form of data ({data.format}).")
    return data, made(data)


def predict_both(model: Any, X: list[Any]) -> Predictions:
    """Return labels and marginals; marginals that decide the labels are computed once."""
    start = time.perf_counter()
    probabilities = model.predict_proba(X)
    decoder = model.decoder if isinstance(model.decoder, str) else repr(model.decoder)
    if decoder.split("(")[0].strip() in ("max_marginal", "soft"):
        labels = [model.classes_[p.argmax(axis=-1)] for p in probabilities]
    else:
        labels = model.predict(X)
    return Predictions(labels, probabilities, time.perf_counter() - start)


def settings_of(model: Any, made: Preprocessing | None = None) -> dict[str, str]:
    """Return what a report says about a model."""
    shown = {key: str(value) for key, value in model.get_params(deep=False).items() if key in SHOWN and value is not None}
    for key in ("features", "edges"):
        if made is not None and getattr(made, key):
            shown[key] = getattr(made, key)
    return {"estimator": type(model).__name__} | shown | {"weights": f"{len(model.weights_):,}"}
