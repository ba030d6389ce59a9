"""The real data, where it is."""

import pytest

from backfield.datasets import data_dir
from backfield.errors import InputError


def real_data(name):
    """Return the folder of all data, or skip the test if data set ``name`` is not in it."""
    try:
        folder = data_dir()
    except InputError as error:
        pytest.skip(str(error))
    if not (folder / name).exists():
        pytest.skip(f"there is no {folder / name}; docs/data.md says where to get it")
    return folder
