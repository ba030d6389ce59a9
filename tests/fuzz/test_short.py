"""A few dozen cases of each campaign that has no known findings; ``make fuzz`` runs all of them for long."""

import sys

import pytest

pytest.importorskip("PIL")
if not sys.platform.startswith("linux"):
    pytest.skip("cases run in forked children with limits of Linux", allow_module_level=True)

from fuzz.campaigns import Arrays, Checkpoints, ModelFiles, Packs, Pictures
from fuzz.runner import run_campaign


@pytest.mark.parametrize("campaign", [ModelFiles, Packs, Checkpoints, Arrays, Pictures], ids=lambda each: each.__name__)
def test_no_findings(campaign, tmp_path):
    tally = run_campaign(campaign(), tmp_path, seed=1, seconds=20, most=24)
    assert not tally.findings, tally.findings[0]
    assert tally.counts.total() > 0
