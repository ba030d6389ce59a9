"""``backfield warm``: compile the usual kernels, for the image of a container or after an installation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer


def warm(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Compile the usual kernels, so no later process waits for them; say where they are kept."""
    import sys
    import warnings

    from backfield.cli._console import progress_bar
    from backfield.kernels.cache import common, kept
    from backfield.kernels.compiling import compiled, shown_by

    with progress_bar("compiling", not quiet and sys.stderr.isatty()) as progress, shown_by(lambda text: None):
        for done, work in enumerate(WORK):
            progress(done, len(WORK))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a few iterations are enough here
                work()
        progress(len(WORK), len(WORK))
    if quiet:
        return
    kernels, seconds = compiled()
    folders, size = kept()
    found = f"compiled {kernels} kernels in {seconds:.0f} s" if kernels else "all kernels were cached"
    typer.echo(f"{found}; {size / 1e6:.0f} MB in {common(folders)} (set NUMBA_CACHE_DIR to change this)")


def _grid() -> None:
    """Fit a binary grid and one of three classes, as by default; predict and decode."""
    import numpy as np

    import backfield as bf

    for classes in (2, 3):
        images = [np.random.default_rng(k).random((12, 12, 2)) for k in range(3)]
        masks = [(image[..., 0] * classes).astype(int) for image in images]
        crf = bf.GridCRF(learner="lbfgs(max_iter=3)").fit(images, masks)
        crf.predict(images)
        crf.predict_proba(images)


def _chain() -> None:
    """Fit a chain of numbers and one of words; predict."""
    import numpy as np

    import backfield as bf

    rng = np.random.default_rng(0)
    X = [rng.random((9, 2)) for _ in range(4)]
    bf.ChainCRF(learner="lbfgs(max_iter=3)").fit(X, [(x[:, 0] * 3).astype(int) for x in X]).predict(X)
    words = [[{"word": text} for text in ["the", "cat", "sat", "on", "the", "mat"]]] * 3
    crf = bf.ChainCRF(learner="lbfgs(max_iter=3)").fit(words, [list("DNVPDN")] * 3)
    crf.predict(words)
    crf.predict_proba(words)


def _infer() -> None:
    """Answer for pairs of one label count, for mixed factors, and with forbidden entries."""
    import numpy as np

    import backfield as bf

    rng = np.random.default_rng(0)
    pairs = bf.Graph.from_edges([(0, 1), (1, 2), (2, 0)], n_variables=3, labels=2)
    mixed = bf.Graph(labels=[2, 3, 2], factors=[(0, 1), (0, 1, 2)])
    for graph in (pairs, mixed):
        unary = [rng.random(count) for count in graph.labels.tolist()]
        tables = [rng.random([int(graph.labels[i]) for i in scope]) for scope in graph.factors]
        for low in (0.0, -np.inf):
            tables[0][0, 0] = low
            for method in ("exact", "tree_reweighted(n_iter=50)", "loopy_bp(n_iter=50)", "mean_field(n_iter=50)"):
                bf.infer(bf.Potentials(graph, unary, tables), method)


#: What people do first.
WORK: tuple[Callable[[], None], ...] = (_grid, _chain, _infer)
