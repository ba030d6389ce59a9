"""``backfield predict``: labels for new data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP, Force
from backfield.cli.fit import DATA_HELP, again

if TYPE_CHECKING:
    from backfield.data.format import Data


class MaskFormat(StrEnum):
    """How masks are written as PNG: a pixel is the number of its class in each."""

    palette = "palette"
    grey = "grey"


def predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model written by fit.")],
    data: Annotated[Path, typer.Argument(help=f"{DATA_HELP} Labels are optional.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="For images, a folder for masks; otherwise a file in the format of DATA.")
    ],
    proba: Annotated[bool, typer.Option("--proba", help="Also write the probabilities.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Masks: resume after an interruption.")] = False,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER_HELP)] = None,
    n_jobs: Annotated[int, typer.Option(help="Number of threads; -1 = all cores.")] = 1,
    tile: Annotated[
        int | None,
        typer.Option(min=1, help="Images, volumes: predict tiles of this side length in pixels; the result is the same."),
    ] = None,
    mask_format: Annotated[
        MaskFormat, typer.Option("--format", help="PNG masks: classes with colours, or as shades of grey.")
    ] = MaskFormat.palette,
    force: Force = False,
) -> None:
    """Predict labels: PNG masks for images, an .npz for an .npz, a further column for a column file.

    NIfTI, TIFF and zarr get labels in their own format. Masks are written as they come.
    """
    from backfield.atomic import protecting
    from backfield.cli._models import load_model, predict_both, read_for

    context.with_resource(protecting(model, data, force=force))
    crf, made = load_model(model)
    crf.set_params(n_jobs=n_jobs)
    read, X = read_for(crf, made, data, with_labels=False, lazy=True)
    if read.format.masks:
        colours = mask_format is MaskFormat.palette
        typer.echo(_stream_masks(context, crf, model, read, X, out, proba, resume, cluster, tile, colours))
        return
    if resume:
        raise typer.BadParameter("--resume is for folders of masks; other predictions are one file, written at the end.")
    found = predict_both(crf, X, cluster, tile)
    written = read.format.write(out, read, found.labels, found.probabilities if proba else None)
    typer.echo(f"{len(read)} {read.unit[0]}{'s' * (len(read) != 1)} in {found.seconds:.2f} s; wrote {written}")


def _stream_masks(
    context: typer.Context,
    crf: Any,
    model: Path,
    data: Data,
    X: Any,
    out: Path,
    proba: bool,
    resume: bool,
    cluster: Any,
    tile: int | None,
    colours: bool,
) -> str:
    """Write one mask after the other; those of an earlier run of the same model are kept with ``resume``."""
    import time

    from backfield.cli._console import progress_bar
    from backfield.errors import ClusterError

    files = [data.format.mask_files(out, data, k, proba) for k in range(len(data))]
    folder = files[0][0].parent
    _check_folder(data, out, folder)
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / ".predicting.json"
    resume = _begin(marker, model, data, resume)
    left = [k for k in range(len(data)) if not resume or not all(path.exists() for path in files[k])]
    start, done = time.perf_counter(), len(data) - len(left)
    try:
        with progress_bar("predicting", sys.stderr.isatty()) as progress:
            for _ in _written(crf, data, X, files, left, proba, cluster, tile, colours):
                done += 1
                progress(done, len(data))
    except (KeyboardInterrupt, ClusterError, OSError) as error:
        text = f"{done} of {len(data)} masks are in {folder}. To resume: {again(context)}"
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error} {text}") from error
        if isinstance(error, OSError):
            raise OSError(error.errno, f"{error.strerror or error}; {text}", error.filename) from error
        raise KeyboardInterrupt(f"interrupted; {text}") from None
    marker.unlink(missing_ok=True)
    kept = f" ({len(data) - len(left)} were there)" if len(left) < len(data) else ""
    what = data.unit[0]
    written = " and ".join(_pattern(paths) for paths in zip(*files, strict=True)) + ", (..., classes)" * proba
    return f"{len(data)} {what}{'s' * (len(data) != 1)}{kept} in {time.perf_counter() - start:.2f} s; wrote {written}"


def _pattern(paths: tuple[Path, ...]) -> str:
    """Return the name of one file, or what the names of several have in common."""
    if len(set(paths)) == 1:
        return str(paths[0])
    endings = zip(*(path.suffixes[::-1] for path in paths), strict=False)
    common = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, endings)]
    return f"{paths[0].parent}/*{''.join(common[::-1])}"


def _written(
    crf: Any,
    data: Data,
    X: Any,
    files: list[list[Path]],
    left: list[int],
    proba: bool,
    cluster: Any,
    tile: int | None,
    colours: bool,
) -> Iterator[None]:
    """Predict and write examples; those whose files are written by parts are never held as a whole."""
    from backfield.cli._models import predicted
    from backfield.data.sequences import select

    if tile is not None and left and data.format.by_parts(files[left[0]]):
        for k in left:
            _write_parts(crf, X[k], files[k], cluster, tile)
            yield
        return
    for k, (labels, p) in zip(left, predicted(crf, select(X, left), cluster, tile), strict=True):
        data.format.write_masks(files[k], data, k, labels, p if proba else None, colours)
        yield


def _write_parts(crf: Any, x: Any, files: list[Path], cluster: Any, tile: int) -> None:
    from backfield.cli._models import quiet_cluster

    with quiet_cluster(cluster):
        if len(files) == 1:
            crf.predict([x], cluster, tile=tile, out=files)
        else:
            next(crf.predict_each([x], cluster, tile=tile, out=[files]))


def _check_folder(data: Data, out: Path, folder: Path) -> None:
    from backfield.errors import InputError

    if folder == out and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; masks go into a folder.")
    if folder.resolve() in ((data.path / name).resolve() for name in ("images", "masks")) or (
        folder == out and out.resolve() == data.path.resolve()
    ):
        raise InputError(f"{folder} holds the data; masks go into another folder, where they overwrite nothing.")


def _begin(marker: Path, model: Path, data: Data, resume: bool) -> bool:
    """Note which model and data the masks are of; return whether there are some of the same to go on with."""
    import hashlib
    import json

    from backfield.atomic import write_text
    from backfield.errors import InputError

    mine = {"model": hashlib.sha256(model.read_bytes()).hexdigest(), "data": str(data.path.resolve())}
    resume = resume and marker.exists()
    if resume and json.loads(marker.read_text()) != mine:
        raise InputError(f"the masks in {marker.parent} come from another model or other data; cannot resume.")
    write_text(marker, json.dumps(mine))
    return resume
