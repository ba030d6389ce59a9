"""``backfield pack``: features of a data set on disk, in shards that are read one example at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from backfield.data.format import Data, Preprocessing


def pack(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="A folder with images/ and masks/, an .npz, or a CoNLL column file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The packed folder.")],
    model: Annotated[str | None, typer.Option(help="Structure, as for fit; by default by --like or the data.")] = None,
    features: Annotated[str | None, typer.Option(help="Of pixels: rgb, raw, pixel or l13.")] = None,
    edges: Annotated[
        str | None, typer.Option(help="Of edges: constant, difference, sobel (joined by commas), given.")
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="A model or packed folder whose features to compute for new data.")
    ] = None,
    labels: Annotated[bool, typer.Option("--labels/--no-labels", help="Also pack the labels.")] = True,
    shard_mb: Annotated[float, typer.Option(min=0.001, help="Approximate size of a shard.")] = 64,
    n_jobs: Annotated[int, typer.Option(help="Number of processes; -1 = all cores.")] = -1,
    verbose: Annotated[bool, typer.Option("--verbose/--quiet", help="Show progress.")] = True,
) -> None:
    """Compute features once and write them to a folder that fit, predict and evaluate take; run again to go on."""
    import os

    from backfield.atomic import protecting
    from backfield.cli._console import progress_bar
    from backfield.data.kinds import lazy_inputs, source_of
    from backfield.data.packed import is_packed, write_shards
    from backfield.errors import InputError
    from backfield.structures.reading import read_data

    context.with_resource(protecting(data, like))
    if out.resolve() == data.resolve():
        raise InputError(f"{out} is the input; choose another output folder.")
    structure, made = _like(like, features, edges)
    read = read_data(data, labels, made.n_columns if made is not None else None, lazy=True, structure=model or structure)
    if is_packed(data):
        raise InputError(f"{data} is packed already.")
    made = made or _choose(read, features, edges)
    jobs = (os.cpu_count() or 1) if n_jobs == -1 else max(1, n_jobs)
    with progress_bar(f"packing {read.unit[0]}s", verbose) as progress:
        shards = write_shards(
            out, lazy_inputs(read, made), read.labels, structure=read.structure, names=read.names,
            preprocessing=made.as_json(), source=source_of(read), shard_bytes=int(shard_mb * 2**20), n_jobs=jobs,
            progress=progress,
        )  # fmt: skip
    example = read.unit[0]
    size = shards.total_bytes / 2**20
    typer.echo(f"{len(shards)} {example}s in {len(shards.shards)} shards, {size:.1f} MiB; wrote {out}")


def _choose(data: Data, features: str | None, edges: str | None) -> Preprocessing:
    from backfield.structures.reading import choose_preprocessing

    return choose_preprocessing(data, features, edges)


def _like(like: Path | None, features: str | None, edges: str | None) -> tuple[str | None, Preprocessing | None]:
    """Return the structure of a model or another packed folder, and how it makes its features."""
    from backfield.cli._models import load_model
    from backfield.data.format import Preprocessing
    from backfield.data.packed import is_packed, open_shards
    from backfield.errors import InputError

    if like is None:
        return None, None
    if features is not None or edges is not None:
        raise InputError("--like already determines the features; leave out --features and --edges.")
    if is_packed(like):
        shards = open_shards(like)
        return shards.kind, Preprocessing.from_json(shards.preprocessing or {})
    model, made = load_model(like)
    if made is None:
        raise InputError(f"{like} has no record of how its features were made.")
    return repr(model.structure_), made
