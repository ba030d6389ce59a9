"""Machines that run tests may be slow, or stand still for a while: schedulers have more time to answer than users wait."""

import pytest

from backfield.training.execution import cluster


@pytest.fixture(autouse=True, scope="session")
def patience():
    """Tests of the limit itself set a shorter one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "TIMEOUT", 120.0)
        yield
