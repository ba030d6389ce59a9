"""``backfield predict``: labels for new data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP
from backfield.cli.fit import DATA_HELP, again

if TYPE_CHECKING:
    from backfield.data.format import Data


def predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model that fit has written.")],
    data: Annotated[Path, typer.Argument(help=f"{DATA_HELP} Labels need not be there.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for masks of images; else a file like DATA.")],
    proba: Annotated[bool, typer.Option("--proba", help="Write the probabilities, too.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Masks: go on after an interruption.")] = False,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER_HELP)] = None,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1 = all cores.")] = 1,
) -> None:
    """Predict labels: PNG masks for images, an .npz for an .npz, a further column for a column file.

    Masks are written as they come.
    """
    from backfield.atomic import protecting
    from backfield.cli._models import load_model, predict_both, read_for

    context.with_resource(protecting(model, data))
    crf, made = load_model(model)
    crf.set_params(n_jobs=n_jobs)
    read, X = read_for(crf, made, data, with_labels=False, lazy=True)
    if read.format.masks:
        typer.echo(_stream_masks(context, crf, model, read, X, out, proba, resume, cluster))
        return
    if resume:
        raise typer.BadParameter("--resume is for folders of masks; other predictions are one file, written at the end.")
    found = predict_both(crf, X, cluster)
    written = read.format.write(out, read, found.labels, found.probabilities if proba else None)
    typer.echo(f"{len(read)} {read.unit[0]}{'s' * (len(read) != 1)} in {found.seconds:.2f} s; wrote {written}")


def _stream_masks(
    context: typer.Context, crf: Any, model: Path, data: Data, X: Any, out: Path, proba: bool, resume: bool, cluster: Any
) -> str:
    """Write one mask after the other; those of an earlier run of the same model are kept with ``resume``."""
    import time

    from backfield.cli._console import progress_bar
    from backfield.cli._models import predicted
    from backfield.data.sequences import select
    from backfield.errors import ClusterError

    _check_folder(data, out)
    out.mkdir(parents=True, exist_ok=True)
    marker = out / ".predicting.json"
    resume = _begin(marker, model, data, resume)
    endings = [".png", ".npy"] if proba else [".png"]
    left = [k for k, name in enumerate(data.names) if not resume or any(not _file(out, name, e).exists() for e in endings)]
    start, done = time.perf_counter(), len(data) - len(left)
    try:
        with progress_bar("predicting", sys.stderr.isatty()) as progress:
            for k, (labels, p) in zip(left, predicted(crf, select(X, left), cluster), strict=True):
                _write_mask(out, data.names[k], labels, p if proba else None)
                done += 1
                progress(done, len(data))
    except (KeyboardInterrupt, ClusterError) as error:
        text = f"{done} of {len(data)} masks are in {out}. To go on: {again(context)}"
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error} {text}") from error
        raise KeyboardInterrupt(f"interrupted; {text}") from None
    marker.unlink(missing_ok=True)
    kept = f" ({len(data) - len(left)} were there)" if len(left) < len(data) else ""
    written = f"{out}/*.png" + (" and *.npy, (height, width, classes)" if proba else "")
    return f"{len(data)} image{'s' * (len(data) != 1)}{kept} in {time.perf_counter() - start:.2f} s; wrote {written}"


def _check_folder(data: Data, out: Path) -> None:
    from backfield.errors import InputError

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; masks go into a folder.")
    if out.resolve() in (data.path.resolve(), *((data.path / name).resolve() for name in ("images", "masks"))):
        raise InputError(f"{out} holds the data; masks go into another folder, where they overwrite nothing.")


def _begin(marker: Path, model: Path, data: Data, resume: bool) -> bool:
    """Note which model and data the masks are of; return whether there are some of the same to go on with."""
    import hashlib
    import json

    from backfield.errors import InputError

    mine = {"model": hashlib.sha256(model.read_bytes()).hexdigest(), "data": str(data.path.resolve())}
    resume = resume and marker.exists()
    if resume and json.loads(marker.read_text()) != mine:
        raise InputError(f"the masks in {marker.parent} are of another model or other data; they cannot be gone on with.")
    marker.write_text(json.dumps(mine))
    return resume


def _file(out: Path, name: str, ending: str) -> Path:
    return out / f"{name}{ending}"


def _write_mask(out: Path, name: str, labels: Any, p: Any) -> None:
    """Write a mask whole or not at all, after its probabilities."""
    import numpy as np

    from backfield.atomic import replacing
    from backfield.data.formats import write_mask

    if p is not None:
        with replacing(_file(out, name, ".npy")) as file:
            np.save(file, p.astype(np.float32))
    write_mask(_file(out, name, ".png"), labels)
