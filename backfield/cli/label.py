"""``backfield label``: paint labels on images in the browser and watch a model learn."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def label(
    folder: Annotated[Path, typer.Argument(help="A folder of PNG or JPEG images, or one with images/ in it.")],
    labels: Annotated[str | None, typer.Option(help="Names of the labels, joined by commas.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model exported by an earlier session, to start from.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 = any that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Paint a few strokes, watch the field think, keep the model; Ctrl-C ends it.

    Strokes are saved as they come, as masks beside the images: FOLDER is then a training folder for fit.
    """
    from backfield.errors import InputError

    try:
        import PIL  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(f"backfield label needs {error.name}: pip install 'backfield[label]'.") from error
    from backfield.cli._signals import handling
    from backfield.labelling import Session
    from backfield.labelling.serve import Served

    session = Session(folder, [name.strip() for name in labels.split(",")] if labels else [])
    try:
        served = Served(session, port, model)
    except BaseException:
        session.close()
        raise

    def started() -> None:
        typer.echo(f"{len(session.images)} images in {folder}. Open {served.url}")
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
