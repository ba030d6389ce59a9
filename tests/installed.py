"""The command line for tests of commands that packages of this repository plug in; ``make test`` installs them."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest

from backfield.cli import app
from backfield.cli.plugged import HOMES


def run(arguments):
    """Run ``backfield`` and return its exit code; skip the test if the command's package is not installed."""
    package = HOMES[arguments[0]][0]
    try:
        distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return app.run(arguments)
