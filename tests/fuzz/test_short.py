"""A few cases of each campaign, a few kills and models; ``make fuzz`` runs all of them for long."""

import contextlib
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("PIL")
if not sys.platform.startswith("linux"):
    pytest.skip("cases run in forked children with limits of Linux", allow_module_level=True)

import backfield as bf
from fuzz import bounds, kills
from fuzz.calls import CommandLines
from fuzz.campaigns import CAMPAIGNS
from fuzz.runner import run_campaign
from tests.models import enumerate_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda each: each.__name__)
def test_no_findings(campaign, tmp_path):
    options = {"commands": ("fit", "predict", "evaluate", "infer")} if campaign is CommandLines else {}  # others take long
    tally = run_campaign(campaign(**options), tmp_path, seed=1, seconds=5, most=6)
    assert not tally.findings, tally.findings[0]
    assert tally.counts.total() > 0


@pytest.mark.parametrize("name", ["lbfgs", "sgd", "label"])
def test_kills_change_nothing(name, tmp_path):
    tally, rng = kills.Tally(), np.random.default_rng(0)
    if name == "label":
        kills.attack_label(rng, tmp_path, tally)
    else:
        kills.attack_fit(name, kills.in_child(lambda: kills.fit(name))[1], 0.5, rng, tmp_path, tally)
    assert tally.kills and not tally.differences


def test_a_lost_checkpoint_is_a_difference(tmp_path):
    """The campaign can fail: another answer is seen."""
    tally = kills.Tally()
    kills.attack_fit("lbfgs", (b"other", "[]"), 0.2, np.random.default_rng(1), tmp_path, tally)
    assert tally.differences == ["lbfgs: other weights or another trace"]


def test_claimed_bounds_hold():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(0, 10_000, 1000):
            theta = bounds.hard_model(seed)
            log_z, _ = enumerate_model(theta)
            for method in bounds.METHODS:
                with contextlib.suppress(bf.InputError):  # mean field cannot start from some zeros
                    assert not bounds.broken(bf.infer(theta, method), log_z)
    assert bounds.broken(bf.infer(bf.Potentials(bf.Graph.chain(2), np.zeros((2, 2)), np.zeros((1, 2, 2))), "exact"), 1.3)
