"""``backfield fit``: learn a model from labelled data."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import CLUSTER_HELP, Force, ridge

if TYPE_CHECKING:
    from backfield.data.format import Data

DATA_HELP = (
    "A folder with images/ and masks/ (PNG, JPEG, NIfTI, TIFF, zarr), an .npz, sentences (CoNLL columns, .conllu, .jsonl), "
    "graphs (.jsonl, .graphml), "
    "or a packed folder."
)


class Dtype(StrEnum):
    """Types of numbers to compute in."""

    float32 = "float32"
    float64 = "float64"


def fit(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")],
    model: Annotated[
        str | None,
        typer.Option(help="Structure: grid for images, chain for sequences, ...; by default chosen from the data."),
    ] = None,
    inference: Annotated[str | None, typer.Option(help="Spec, such as 'tree_reweighted(n_iter=5)'.")] = None,
    loss: Annotated[str | None, typer.Option(help="Spec of a loss or objective.")] = None,
    gradient: Annotated[str | None, typer.Option(help="Spec; by default the usual one for the loss.")] = None,
    learner: Annotated[str | None, typer.Option(help="Spec, such as 'lbfgs(max_iter=100)'.")] = None,
    unary: Annotated[str | None, typer.Option(help="Energy of variables.")] = None,
    pairwise: Annotated[str | None, typer.Option(help="Energy of edges.")] = None,
    decoder: Annotated[str | None, typer.Option(help="Spec: max_marginal, map or soft.")] = None,
    l2: Annotated[
        str | None, typer.Option(help="Ridge (L2 penalty): a number, or auto (1 / (2 labelled variables)).")
    ] = None,
    labels: Annotated[
        int | None, typer.Option(min=2, help="Number of classes, 0 .. N-1; by default those that occur.")
    ] = None,
    l1: Annotated[float | None, typer.Option(help="L1 penalty: drives many weights to 0.")] = None,
    positive: Annotated[
        int | None,
        typer.Option(help="Read this mask value as class 1 and all others as class 0 (255 for masks of 0 and 255)."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Of pixels: rgb, raw, pixel, filters, local, l13; of NIfTI, TIFF, zarr: local, raw; of tokens: windows, "
            "words; of nodes: raw, neighbours."
        ),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(help="Features of tokens by a template file of CRF++ or Wapiti.", exists=True, dir_okay=False),
    ] = None,
    constraints: Annotated[str | None, typer.Option(help="Constraints on tags: BIO or BIOES.")] = None,
    order: Annotated[int | None, typer.Option(help="Sequences: how many earlier labels a label depends on, 1 or 2.")] = None,
    min_count: Annotated[int | None, typer.Option(help="Sequences: ignore named features that occur less often.")] = None,
    edges: Annotated[
        str | None, typer.Option(help="Of edges: constant, difference, sobel, contrast (joined by commas), given.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Precision of the computation.")] = None,
    n_jobs: Annotated[int, typer.Option(help="Number of threads; -1 = all cores.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    validation: Annotated[
        str | None, typer.Option(help="For early stopping: the share of examples to hold out (0.1), or other data.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint file; by default OUT.checkpoint, deleted at the end.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint.")] = False,
    cluster: Annotated[str | None, typer.Option(help=CLUSTER_HELP)] = None,
    chunks: Annotated[
        int, typer.Option(min=1, help="Number of parts every sum is split into; more workers than this won't help.")
    ] = 64,
    verbose: Annotated[bool, typer.Option("--verbose/--quiet", help="Show progress.")] = True,
    force: Force = False,
) -> None:
    """Learn a model from labelled data; Ctrl-C saves a checkpoint."""
    from backfield.atomic import protecting
    from backfield.cli._models import quiet_cluster
    from backfield.data.checks import check_labels
    from backfield.errors import InputError
    from backfield.structures.reading import choose_preprocessing, read_data
    from backfield.training.execution import using

    context.with_resource(protecting(data, None if _is_share(validation) else validation, force=force))
    _check_writable(out)
    train = read_data(data, structure=model, positive=positive)
    check_labels(train, labels)
    train, held_out = _hold_out(train, validation, seed, positive)
    made = choose_preprocessing(train, features, edges)
    if template is not None:
        made = train.format.with_template(train, made, template)
    given = _sequence_options(train, {"constraints": constraints, "order": order, "min_count": min_count}) | {
        "inference": inference, "loss": loss, "learner": learner, "unary": unary, "pairwise": pairwise, "decoder": decoder,
        "l1": l1, "l2": ridge(l2), "n_labels": labels, "dtype": None if dtype is None else dtype.value,
    }  # fmt: skip
    crf = _estimator(train, {key: value for key, value in given.items() if value is not None})
    crf.set_params(n_jobs=n_jobs, random_state=seed, verbose=int(verbose))
    if gradient is not None or loss is not None:  # the default gradient suits the default loss
        crf.set_params(gradient=gradient)
    extra = None if held_out is None else (made(held_out), held_out.labels)
    with quiet_cluster(cluster), using(cluster):
        _run(context, crf, made(train), train.labels, out, checkpoint, resume, extra, chunks)
    crf.preprocessing_ = made.as_json()
    try:
        crf.save(out)
    except InputError as error:  # a disk that is full, say
        kept = f"{checkpoint or _checkpoint_of(out)} holds the finished fit. To resume when there is room: {again(context)}"
        raise InputError(f"{error} {kept}") from error
    if checkpoint is None:
        _checkpoint_of(out).unlink(missing_ok=True)
    typer.echo(_summary(crf, train, out))


def _sequence_options(data: Data, given: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of the structure of the data; those that it does not have are refused."""
    import dataclasses

    from backfield.errors import InputError
    from backfield.registry import get

    known = {field.name for field in dataclasses.fields(get("structures", data.structure))}
    for key, value in given.items():
        if value is not None and key not in known:
            raise InputError(f"--{key.replace('_', '-')} is for sequences; {data.path} holds {data.unit[0]}s.")
    return given


def _run(
    context: typer.Context,
    crf: Any,
    X: Any,
    y: Any,
    out: Path,
    checkpoint: Path | None,
    resume: bool,
    validation: Any,
    n_chunks: int,
) -> None:
    """Fit; an interruption says how to go on."""
    import warnings

    from backfield.cli._signals import between_iterations
    from backfield.errors import ClusterError, ConvergenceWarning

    def say(line: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            typer.echo(f"backfield: {line}", err=True)

    file = checkpoint or _checkpoint_of(out)
    # The user's own checkpoint is kept up to date; ours is there for Ctrl-C and must not cost much.
    often: dict[str, Any] = {} if checkpoint else {"checkpoint_seconds": 120.0, "checkpoint_iterations": 10**9}
    often["n_chunks"] = n_chunks
    before = file.stat().st_mtime_ns if file.exists() else 0
    if resume and not before:
        typer.echo(f"backfield: there is no checkpoint {file}; starting from the beginning.", err=True)
    try:
        with between_iterations(say) as check, warnings.catch_warnings():
            # The summary has the message of the learner.
            warnings.filterwarnings("ignore", ".* stopped at its last iteration", ConvergenceWarning)
            crf.fit(X, y, checkpoint=file, resume=resume, validation=validation, callbacks=[check], **often)
    except KeyboardInterrupt:
        if not file.exists() or (not resume and file.stat().st_mtime_ns == before):
            raise KeyboardInterrupt("interrupted before the first iteration; nothing was saved.") from None
        raise KeyboardInterrupt(f"interrupted; {file} holds the fit so far. To resume: {again(context)}") from None
    except ClusterError as error:
        if not file.exists() or (not resume and file.stat().st_mtime_ns == before):
            raise
        raise ClusterError(f"{error} {file} holds the fit so far. To resume: {again(context)}") from error


def again(context: typer.Context) -> str:
    """Return the command that goes on after an interruption."""
    import shlex

    arguments = [a for a in (context.obj or []) if a != "--resume"]
    return shlex.join(["backfield", *arguments, "--resume"])


def _checkpoint_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.checkpoint")


def _check_writable(out: Path) -> None:
    """Refuse a place that cannot be written before hours are spent, not after."""
    import os

    from backfield.atomic import check_output
    from backfield.errors import InputError
    from backfield.file_kinds import MODEL

    check_output(out, MODEL)
    if out.is_dir():
        raise InputError(f"cannot write the model {out}: it is a folder.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"cannot write the model {out}: there is no folder {out.absolute().parent}.")
    if not os.access(out.absolute().parent, os.W_OK):
        raise InputError(f"cannot write the model {out}: no right to write in {out.absolute().parent}.")


def _is_share(validation: str | None) -> bool:
    """Whether --validation is a share of the examples, not data."""
    try:
        float(validation or "0")
    except ValueError:
        return False
    return True


def _hold_out(data: Data, validation: str | None, seed: int, positive: int | None = None) -> tuple[Data, Data | None]:
    """Return what to learn from and what to stop early by."""
    import numpy as np

    from backfield.data.checks import check_classes, classes_of
    from backfield.errors import InputError
    from backfield.structures.reading import choose_preprocessing, read_data

    assert data.labels is not None
    if validation is None:
        return data, None
    try:
        share = float(validation)
    except ValueError:
        columns = choose_preprocessing(data).n_columns
        other = read_data(Path(validation), n_columns=columns, structure=data.structure, positive=positive)
        if other.format.name != data.format.name:
            raise InputError(f"{validation} and {data.path} are different kinds of data.") from None
        check_classes(other, classes_of(data))
        return data, other
    if not 0 < share < 1:
        raise InputError(f"--validation takes a share between 0 and 1, or data, received {validation}.")
    count = round(share * len(data))
    if not 0 < count < len(data):
        raise InputError(f"--validation {validation} of {len(data)} {data.unit[0]}s leaves nothing on one side.")
    order = np.random.default_rng(seed).permutation(len(data))
    return data.part(np.sort(order[count:])), data.part(np.sort(order[:count]))


def _estimator(data: Data, given: dict[str, Any]) -> Any:
    from backfield.estimators.crf import estimator_for

    return estimator_for(data.structure, **data.format.defaults(data) | given)


def _summary(crf: Any, data: Data, out: Path) -> str:
    from backfield.graph.labeling import is_known

    assert data.labels is not None
    example, variable = data.unit
    known = sum(int(is_known(each).sum()) for each in data.labels)
    last: dict[str, Any] = crf.trace_[-1] if crf.trace_ else {}
    words = [
        f"{len(data)} {example}{'s' * (len(data) != 1)}",
        f"{known:,} labelled {variable}s",
        f"{len(crf.classes_)} classes",
    ]
    found = [f"objective {last['objective']:.6g}"] if "objective" in last else []
    if last.get("error") is not None and last["error"] == last["error"]:
        found.append(f"training error {100 * last['error']:.2f} %")
    if "seconds" in last:
        found.append(f"{last['iteration']} iterations in {last['seconds']:.1f} s")
    return f"{', '.join(words)}: {', '.join(found)} ({crf.message_}).\nwrote {out}"
