"""A command of its own."""

from typing import Annotated

import typer


def toy(times: Annotated[int, typer.Option(help="How often.")] = 1) -> None:
    """Say which parts the package brings."""
    typer.echo("focal, parallel_mean_field, ring\n" * times, nl=False)
