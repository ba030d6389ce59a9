"""``backfield demo``: four ways to learn the same model, on the generated denoising images of [L13] §8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from backfield.report import Example, ModelResult, Row

#: Name -> parameters of the estimator, and what it does in a line.
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "independent": ({"pairwise": "zero"}, "every pixel on its own: logistic regression"),
    "surrogate likelihood": (
        {"loss": "surrogate_likelihood", "inference": "tree_reweighted(n_iter=500, tol=3e-4)", "gradient": None},
        "likelihood with the log Z of converged tree-reweighted message passing",
    ),
    "univariate logistic, 5 it.": (
        {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=5)", "gradient": "truncated"},
        "the loss of the marginals after 5 iterations, differentiated through them",
    ),
    "univariate logistic, 10 it.": (
        {"loss": "univariate_logistic", "inference": "tree_reweighted(n_iter=10)", "gradient": "truncated"},
        "the same after 10 iterations",
    ),
}
COMMON: dict[str, Any] = {"l2": 1e-4, "learner": "lbfgs(max_iter=300)", "random_state": 0}
N_SHOWN = 3


class Images(NamedTuple):
    """Examples for an estimator, and their masks."""

    X: list[Any]
    masks: list[Any]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for tables, pictures, models and report.html.")] = Path("demo"),
    images: Annotated[int, typer.Option(min=1, help="Number of training images, and of test images.")] = 8,
    size: Annotated[int, typer.Option(min=2, help="Side length of the images in pixels.")] = 100,
    n_jobs: Annotated[int, typer.Option(help="Number of threads; -1 = all cores.")] = -1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the images.")] = 0,
) -> None:
    """Train and evaluate on generated data; write tables, pictures and report.html."""
    import json
    import time

    from backfield.atomic import write_text
    from backfield.cli._console import console
    from backfield.kernels.compiling import compiled, shown_by

    screen, start = console(), time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    train, test = _data(images, size, seed)
    screen.print(f"Denoising images of [L13] §8: {images} to train on, {images} to test on, {size}x{size} pixels.")
    results, marginals = [], {}
    for name, (settings, words) in MODELS.items():
        doing = f"{name}: {words}"
        with screen.status(doing) as status, shown_by(_line(status, doing)):
            result, marginals[name] = _train(name, settings, train, test, n_jobs, out)
        screen.print(f"  {name}: {words}; {result.seconds['fit']:.1f} s")
        results.append(result)
    _print_table(screen, results)
    rows = _pictures(test, marginals, results)
    _write_pictures(out, rows)
    kernels, compiling = compiled()
    if kernels:
        screen.print(f"Compiling {kernels} kernels took {compiling:.1f} s (once; not counted above).")
    total = time.perf_counter() - start
    _write_report(out / "report.html", results, _examples(test, marginals, rows), images, size, seed, total)
    scores = {r.name: {**r.metrics.as_json(), "seconds": r.seconds} for r in results}
    write_text(out / "results.json", json.dumps(scores, indent=1) + "\n")
    screen.print(f"{total:.0f} s in all; wrote {out}/report.html, demo.png, results.json and the models.")


def _line(status: Any, otherwise: str) -> Callable[[str], None]:
    return lambda text: status.update(text or otherwise)


def _data(images: int, size: int, seed: int) -> tuple[Images, Images]:
    import backfield as bf
    from backfield.datasets.generated import denoising

    made = denoising(2 * images, size, seed, sd=min(10.0, size / 10))
    X = [bf.GridSample(*each) for each in zip(made.features, made.horizontal, made.vertical, strict=True)]
    return Images(X[:images], made.masks[:images]), Images(X[images:], made.masks[images:])


def _train(
    name: str, settings: dict[str, Any], train: Images, test: Images, n_jobs: int, out: Path
) -> tuple[ModelResult, list[Any]]:
    import backfield as bf
    from backfield.cli._models import predict_both, settings_of
    from backfield.kernels.compiling import clock
    from backfield.report import ModelResult, evaluate

    start = clock()
    crf = bf.GridCRF(**COMMON, **settings, n_jobs=n_jobs).fit(*train)
    seconds = {"fit": clock() - start}
    crf.save(out / f"{_slug(name)}.bf")
    found = predict_both(crf, test.X)
    metrics = evaluate(test.masks, found.labels, crf.classes_, found.probabilities)
    shown = settings_of(crf) | {"stopped": crf.message_}
    return ModelResult(name, metrics, crf.trace_, shown, seconds | {"predict": found.seconds}), found.probabilities


def _print_table(screen: Any, results: list[ModelResult]) -> None:
    from rich import box
    from rich.table import Table

    table = Table("model", box=box.SIMPLE)
    for heading in ("test error", "gain", "mean IoU", "ECE", "log loss", "seconds to fit"):
        table.add_column(heading, justify="right")
    base = results[0].metrics.error
    for result in results:
        m = result.metrics
        gain = "" if result is results[0] else f"{100 * (base - m.error) / base:.0f} % fewer"
        table.add_row(
            result.name,
            f"{100 * m.error:.2f} %",
            gain,
            f"{m.mean_iou:.3f}",
            f"{m.ece:.4f}",
            f"{m.log_loss:.4f}",
            f"{result.seconds['fit']:.1f}",
        )
    screen.print(table)


def _pictures(test: Images, marginals: dict[str, list[Any]], results: list[ModelResult]) -> list[Row]:
    from backfield.report import Picture, Row
    from backfield.report.pictures import input_picture, label_picture, marginal_picture

    rows = []
    for k in range(min(N_SHOWN, len(test.X))):
        pictures = [
            Picture("input", input_picture(test.X[k].features)),
            Picture("truth", label_picture(test.masks[k].astype(int))),
            *(Picture(name, marginal_picture(found[k])) for name, found in marginals.items()),
        ]
        rows.append(Row(f"image {k}", pictures))
    return rows


def _examples(test: Images, marginals: dict[str, list[Any]], rows: list[Row]) -> list[Example]:
    """Return all test images for the report; the first ones have pictures."""
    import numpy as np

    from backfield.report import Example
    from backfield.report.gallery import confusions_of

    found = []
    for k, mask in enumerate(test.masks):
        guesses = [np.asarray(each[k]).argmax(axis=-1) for each in marginals.values()]
        errors = [float((guess != mask).mean()) for guess in guesses]
        pictures = rows[k].pictures if k < len(rows) else ()
        found.append(Example(f"image {k}", errors, confusions_of(np.asarray(mask, np.int64), guesses[0]), pictures))
    return found


def _write_pictures(out: Path, rows: list[Row]) -> None:
    from backfield.report.pictures import montage, write_png

    write_png(out / "demo.png", montage(rows))
    folder = out / "pictures"
    folder.mkdir(exist_ok=True)
    for k, row in enumerate(rows):
        for picture in row.pictures:
            write_png(folder / f"{k}-{_slug(picture.caption)}.png", picture.pixels)


def _write_report(
    path: Path, results: list[ModelResult], examples: list[Example], images: int, size: int, seed: int, total: float
) -> None:
    from backfield.report import write_report

    about = [
        "Blobs (smooth noise, rounded) are hidden behind one feature of each pixel and one of each edge between pixels; the "
        "features of both labels overlap almost entirely (Domke 2013, Structured Learning via Logistic Regression, §8).",
        f"Four models with linear energies learn from {images} images of {size}x{size} pixels and are tested on {images} "
        "others. Pictures show the marginal probability of label 1 at every pixel.",
    ]
    settings = {
        "data": f"denoising({2 * images}, size={size}, seed={seed})",
        "to train on": f"{images} images, {images * size * size:,} pixels",
        "to test on": f"{images} images, {images * size * size:,} pixels",
        "seconds in all": f"{total:.1f}",
        "command": f"backfield demo --images {images} --size {size} --seed {seed}",
    }
    write_report(path, "Denoising: four ways to learn", about, results, examples, settings=settings)


def _slug(name: str) -> str:
    """Return a name as it may stand in that of a file."""
    import re

    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
