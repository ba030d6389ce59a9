"""Where the shared data is, if it is."""

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("BACKFIELD_DATA") or Path(__file__).parents[3] / "shared" / "data")


def folder(name):
    """A folder of the shared data, or skip."""
    if not (ROOT / name).is_dir():
        pytest.skip(f"no {name} in {ROOT}; set BACKFIELD_DATA to the folder that has it")
    return ROOT / name
