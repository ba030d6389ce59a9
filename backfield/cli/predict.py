"""``backfield predict``: labels for new data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli.fit import DATA_HELP

if TYPE_CHECKING:
    from backfield.cli._models import Predictions
    from backfield.io import Data


def predict(
    model: Annotated[Path, typer.Argument(help="A model that fit has written.")],
    data: Annotated[Path, typer.Argument(help=f"{DATA_HELP} Labels need not be there.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for masks of images; else a file like DATA.")],
    proba: Annotated[bool, typer.Option("--proba", help="Write the probabilities, too.")] = False,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1 = all cores.")] = 1,
) -> None:
    """Predict labels: PNG masks for a folder of images, an .npz for an .npz, a further column for a column file."""
    from backfield.cli._models import load_model, predict_both, read_for

    crf, made = load_model(model)
    crf.set_params(n_jobs=n_jobs)
    read, X = read_for(crf, made, data, with_labels=False)
    found = predict_both(crf, X)
    packed = _write_masks if read.kind == "grid" else _write_arrays
    writer = {"images": _write_masks, "arrays": _write_arrays, "columns": _write_columns, "packed": packed}[read.format]
    written = writer(read, found, out, proba)
    typer.echo(f"{len(read)} {read.unit[0]}{'s' * (len(read) != 1)} in {found.seconds:.2f} s; wrote {written}")


def _write_masks(data: Data, found: Predictions, out: Path, proba: bool) -> str:
    import numpy as np

    from backfield.errors import InputError
    from backfield.io import write_mask

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; masks go into a folder.")
    if out.resolve() in (data.path.resolve(), *((data.path / name).resolve() for name in ("images", "masks"))):
        raise InputError(f"{out} holds the data; masks go into another folder, where they overwrite nothing.")
    out.mkdir(parents=True, exist_ok=True)
    for name, labels, p in zip(data.names, found.labels, found.probabilities, strict=True):
        write_mask(out / f"{name}.png", labels)
        if proba:
            np.save(out / f"{name}.npy", p.astype(np.float32))
    return f"{out}/*.png" + (" and *.npy, (height, width, classes)" if proba else "")


def _write_arrays(data: Data, found: Predictions, out: Path, proba: bool) -> str:
    import numpy as np

    from backfield.io import write_npz

    images = data.kind == "grid"
    arrays: dict[str, Any] = {"masks" if images else "y": found.labels}
    p = found.probabilities
    if not images:  # end to end, as they are read back
        lengths = np.array([len(each) for each in found.labels])
        arrays, p = {"y": np.concatenate(found.labels), "lengths": lengths}, np.concatenate(p)  # type: ignore[assignment]
    if proba:
        arrays["probabilities"] = p
    write_npz(out, arrays)
    return f"{out} with {', '.join(arrays)}"


def _write_columns(data: Data, found: Predictions, out: Path, proba: bool) -> str:
    from backfield.io import write_column_file
    from backfield.io.columns import read_column_file

    columns = len(data.inputs[0][0])
    truth = read_column_file(data.path, columns, with_labels=False).labels
    sentences = []
    for k, tokens in enumerate(data.inputs):
        rows = [list(token) for token in tokens]
        for at, row in enumerate(rows):
            row += [] if truth is None else [truth[k][at]]
            row.append(str(found.labels[k][at]))
            row += [f"{found.probabilities[k][at].max():.4f}"] if proba else []
        sentences.append(rows)
    write_column_file(out, sentences)
    return f"{out}; the {'last but one' if proba else 'last'} column is the prediction" + (", then its probability" * proba)
