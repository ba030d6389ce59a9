import numpy as np
import pytest

from backfield import InputError
from backfield.oracles import BoostedTrees, OracleTask, objective
from backfield.oracles.boosted_trees import BoostedTreesFunction
from tests.oracles.rows import rows

lightgbm = pytest.importorskip("lightgbm")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("margin", [0, 10, 300])
def test_no_round_raises_the_biased_loss(n_classes, margin):
    x, y, bias = rows(n=3000, n_classes=n_classes, margin=margin)
    f, losses = None, [objective(np.zeros(bias.shape), y, bias)]
    for _ in range(15):
        f = BoostedTrees().fit(OracleTask(x, y, bias, start=f))
        losses.append(objective(f.scores(x), y, bias))
    assert np.all(np.diff(losses) < 1e-9)
    assert losses[-1] < losses[0] - 0.05


def test_leaf_values_are_log_odds_without_the_bias():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(4000, 1)).astype(float)
    y = (rng.random(4000) < np.where(x[:, 0] == 1, 0.8, 0.3)).astype(int)
    bias = np.tile([0.0, 0.7], (4000, 1))
    f = BoostedTrees(learning_rate=1, subsample=1, l2=0).fit(OracleTask(x, y, bias))
    for value in (0, 1):
        p = y[x[:, 0] == value].mean()
        scores = f.scores(np.array([[float(value)]]))[0]
        assert scores[1] - scores[0] == pytest.approx(np.log(p / (1 - p)) - 0.7, abs=2e-3)
        assert scores.sum() == pytest.approx(0)


def test_every_leaf_has_its_share_of_the_rows():
    x, y, bias = rows(n=2000, n_classes=2)
    f = BoostedTrees(subsample=1).fit(OracleTask(x, y, bias))
    counts = np.bincount(f.trees.leaves(x)[:, 0])
    assert counts.min() >= 100 and len(counts) > 5


def test_trees_see_other_rows_in_each_fit():
    x, y, bias = rows(n=2000, n_classes=2)
    f = BoostedTrees().fit(OracleTask(x, y, bias, seed=1))
    g = BoostedTrees().fit(OracleTask(x, y, bias, seed=2))
    assert not np.array_equal(f.trees.threshold, g.trees.threshold)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_several_rounds_are_several_fits_in_number(n_classes):
    x, y, bias = rows(n=2000, n_classes=n_classes)
    f = BoostedTrees(n_rounds=4).fit(OracleTask(x, y, bias))
    assert f.trees.n_trees == 4 * (1 if n_classes == 2 else n_classes)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbm_reads_the_saved_text(n_classes):
    x, y, bias = rows(n=2000, n_classes=n_classes)
    f = BoostedTrees(n_rounds=5).fit(OracleTask(x, y, bias))
    f = BoostedTrees(n_rounds=2).fit(OracleTask(x, y, -bias, start=f))
    booster = lightgbm.Booster(model_str=f.arrays()["model"].tobytes().decode())
    np.testing.assert_allclose(booster.predict(x, raw_score=True), f.sums(x).squeeze(), rtol=1e-12)


def test_kept_scores_follow_the_features_and_not_the_array():
    x, y, bias = rows(n=2000)
    f = BoostedTrees().fit(OracleTask(x, y, bias))
    before = f.scores(x)
    x[:, 0] = -x[:, 0]
    fresh = BoostedTreesFunction.from_arrays(f.arrays(), f.meta())
    np.testing.assert_array_equal(f.scores(x), fresh.scores(x))
    assert not np.array_equal(f.scores(x), before)
    a = BoostedTrees().fit(OracleTask(x, y, bias, start=f, seed=1))
    b = BoostedTrees().fit(OracleTask(x, y, bias, start=f, seed=2))
    for g in (a, b):
        fresh = BoostedTreesFunction.from_arrays(g.arrays(), g.meta())
        np.testing.assert_array_equal(g.scores(x), fresh.scores(x))
    f.scores(x)[:] = 0  # What is returned is the caller's own.
    np.testing.assert_array_equal(f.scores(x), BoostedTreesFunction.from_arrays(f.arrays(), f.meta()).scores(x))


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("backfield.oracles.boosted_trees.KEPT_NUMBERS", 5000)
    x, y, bias = rows(n=1000)
    f = BoostedTrees().fit(OracleTask(x, y, bias))
    for shift in range(5):
        f.scores(x + shift)
    assert sum(sums.size for _, sums in f._kept.values()) <= 5000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left_child=", "left_child=0 "),
        ("split_feature=", "split_feature=9 "),
        ("leaf_value=", "leaf_value=x "),
        ("num_leaves=", "n="),
    ],
)
def test_damaged_text_is_refused(old, new):
    x, y, bias = rows(n=500)
    f = BoostedTrees().fit(OracleTask(x, y, bias))
    text = f.arrays()["model"].tobytes().decode().replace(old, new)
    with pytest.raises(InputError, match="tree 0"):
        BoostedTreesFunction.from_arrays({"model": np.frombuffer(text.encode(), dtype=np.uint8)}, f.meta())


def test_rows_without_features_are_refused():
    _, y, bias = rows(n=50)
    with pytest.raises(InputError, match="boosted_trees: the rows have no features"):
        BoostedTrees().fit(OracleTask(np.empty((50, 0)), y, bias))
