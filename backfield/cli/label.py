"""``backfield label``: paint labels on images in the browser and watch a model learn."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def label(
    folder: Annotated[Path, typer.Argument(help="A folder of PNG or JPEG images, or of volumes (TIFF, NIfTI, zarr).")],
    labels: Annotated[str | None, typer.Option(help="Names of the labels, joined by commas.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model exported by an earlier session, to start from.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 = any that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Paint a few strokes, watch the field think, keep the model; Ctrl-C ends it.

    Strokes are saved as they come, as masks beside the images: FOLDER is then a training folder for fit.
    """
    from backfield.cli._signals import handling
    from backfield.labelling import Session
    from backfield.labelling.serve import Served, check_packages

    check_packages()
    session = Session(folder, [name.strip() for name in labels.split(",")] if labels else [])
    for problem in session.problems:
        typer.echo(f"backfield: {problem}", err=True)
    try:
        served = Served(session, port, model)
    except BaseException:
        session.close()
        raise

    def started() -> None:
        what = "images" if len(session.files) == len(session.images) else f"volumes ({len(session.images)} slices)"
        typer.echo(f"{len(session.files)} {what} in {folder}. Open {served.url}")
        if not no_browser:
            import webbrowser

            webbrowser.open(served.url)

    with contextlib.suppress(KeyboardInterrupt), handling(lambda number, frame: served.stop()):
        served.run(started)
    typer.echo(f"The labels are in {folder / 'masks'} ({folder / 'labels.json'} names them). {_advice(folder)}")


def _advice(folder: Path) -> str:
    if (folder / "model.bf").exists():
        return f"The model is {folder / 'model.bf'}."
    return "There is no model yet: Export on the page writes it."
