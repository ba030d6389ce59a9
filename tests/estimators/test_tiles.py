"""Predictions by tiles have the bits of those of the whole, for every local method, and all others refuse in a sentence."""

import numpy as np
import pytest

import backfield as bf

RNG = np.random.default_rng(3)
#: A fit that makes a model of some weights: no adjoint of its inference is compiled for it.
LEARNING = {"loss": "pseudolikelihood", "learner": "lbfgs(max_iter=1)"}


def model(inference="tree_reweighted(n_iter=2)", n_labels=2, n_features=3, scale=1.0, **params):
    """Return a model with weights of some size, which no fit has smoothed."""
    x = [RNG.normal(size=(4, 5, n_features))]
    y = [np.arange(20).reshape(4, 5) % n_labels]
    crf = bf.GridCRF(inference=inference, **LEARNING | params).fit(x, y)
    crf.weights_ = scale * np.random.default_rng(1).normal(size=len(crf.weights_))
    return crf


def image(shape=(37, 53), n_features=3, seed=0):
    return np.random.default_rng(seed).normal(size=(*shape, n_features)).astype(np.float32)


METHODS = [
    "tree_reweighted(n_iter=3)",
    "tree_reweighted(n_iter=2, rho=0.7)",
    "tree_reweighted(n_iter=2, damping=0.3)",
    "tree_reweighted(n_iter=2, family='log')",
    "loopy_bp(n_iter=4, schedule='flooding')",
    "loopy_bp(n_iter=0)",
    "mean_field(n_iter=3)",
    "mean_field(n_iter=2, schedule='flooding')",
    "smoothed_lp(n_iter=2)",
]


@pytest.mark.parametrize("inference", METHODS)
@pytest.mark.parametrize(("n_labels", "dtype"), [(2, "float32"), (2, "float64"), (3, "float32"), (3, "float64")])
def test_tiles_are_the_whole_to_the_bit(inference, n_labels, dtype):
    crf = model(inference, n_labels, dtype=dtype)
    x = image()
    whole, labels = crf.predict_proba([x])[0], crf.predict([x])[0]
    for tile in (16, (13, 19)):
        np.testing.assert_array_equal(crf.predict_proba([x], tile=tile)[0], whole)
    np.testing.assert_array_equal(crf.predict([x], tile=14)[0], labels)


@pytest.mark.parametrize("inference", ["tree_reweighted(n_iter=5)", "loopy_bp(n_iter=2)", "mean_field(n_iter=3)"])
@pytest.mark.parametrize("neighbours", [4, 8])
def test_tiles_of_an_image_of_many_vector_blocks(inference, neighbours):
    """Kernels take long rows in blocks, and the ends of blocks apart: both must give the same bits."""
    crf = model(inference, n_features=11, scale=0.7, neighbours=neighbours)
    x = image((211, 303), 11)
    np.testing.assert_array_equal(crf.predict_proba([x], tile=(64, 150))[0], crf.predict_proba([x])[0])


def test_a_halo_too_small_by_one_step_is_not_enough(monkeypatch):
    """The halo is no larger than it must be, give or take one: the test above can fail."""
    from backfield.estimators import _tiles

    crf = model("tree_reweighted(n_iter=3)", scale=2.0, dtype="float64")
    x, real = image(), _tiles.halo_of
    whole = crf.predict_proba([x])[0]
    monkeypatch.setattr(_tiles, "halo_of", lambda graph, reach: real(graph, reach - 2))
    assert (crf.predict_proba([x], tile=16)[0] != whole).any()


@pytest.mark.parametrize("scale", [3.0, 8.0, 30.0])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_kernels_are_chosen_for_the_whole_image(scale, n_labels):
    """Large potentials in one corner move all tiles to float64 or to the log domain, as they move the whole image."""
    crf = model("tree_reweighted(n_iter=2)", n_labels, scale=scale)
    x = image()
    x[:3, :3] *= 20
    x[20:, 30:] *= 0.01
    np.testing.assert_array_equal(crf.predict_proba([x], tile=11)[0], crf.predict_proba([x])[0])


def test_edge_features_are_cut_along():
    x = image((30, 41))
    across, down = image((30, 40), 2, 1), image((29, 41), 2, 2)
    small = bf.GridSample(x[:4, :5], across[:4, :4], down[:3, :5])
    for n_labels in (2, 3):
        crf = bf.GridCRF(inference="tree_reweighted(n_iter=2)", **LEARNING)
        crf.fit([small], [np.arange(20).reshape(4, 5) % n_labels])
        crf.weights_ = np.random.default_rng(1).normal(size=len(crf.weights_))
        sample = bf.GridSample(x, across, down)
        np.testing.assert_array_equal(crf.predict_proba([sample], tile=12)[0], crf.predict_proba([sample])[0])


def test_kernels_are_chosen_by_groups_not_by_the_tables_of_a_tile():
    """Where edge features are zero, tables of three labels are Potts, but those of the whole image are not."""
    x = image((40, 40))
    across, down = image((40, 39), 1, 1), image((39, 40), 1, 2)
    across[:30] = down[:30] = 0
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=2)", **LEARNING)
    crf.fit([bf.GridSample(x[:4, :5], across[:4, :4], down[:3, :5])], [np.arange(20).reshape(4, 5) % 3])
    weights = 0.3 * np.random.default_rng(1).normal(size=len(crf.weights_))
    for block in crf.layout_.factors:
        weights[block.stop - 9 : block.stop] = 0.7 * np.eye(3).ravel()
    crf.weights_ = weights
    sample = bf.GridSample(x, across, down)
    np.testing.assert_array_equal(crf.predict_proba([sample], tile=11)[0], crf.predict_proba([sample])[0])


@pytest.mark.parametrize(
    ("params", "tile"),
    [
        ({"neighbours": 8}, 11),
        ({"neighbours": 8, "spacing": (1, 2), "contrast": True}, (10, 17)),
        ({"offsets": [(0, 1), (1, 0), (0, 3)]}, 21),
        ({"neighbours": 8, "inference": "mean_field(n_iter=2)"}, 9),
        ({"neighbours": 8, "inference": "smoothed_lp(n_iter=1)"}, 13),
    ],
)
@pytest.mark.parametrize("n_labels", [2, 3])
def test_tiles_of_any_neighbourhood(params, tile, n_labels):
    crf = model(**{"inference": "tree_reweighted(n_iter=2)", **params}, n_labels=n_labels)
    x = image()
    np.testing.assert_array_equal(crf.predict_proba([x], tile=tile)[0], crf.predict_proba([x])[0])


@pytest.mark.parametrize(
    ("params", "tile"),
    [
        ({"neighbours": 6, "inference": "tree_reweighted(n_iter=2)"}, (5, 6, 7)),
        ({"neighbours": 6, "inference": "tree_reweighted(n_iter=2)", "n_labels": 3}, 6),
        ({"neighbours": 6, "spacing": (5, 1, 1), "dtype": "float64"}, (9, 5, 8)),
        ({"neighbours": 18}, 7),
        ({"neighbours": 26, "inference": "mean_field(n_iter=1)"}, 9),
    ],
)
def test_tiles_of_volumes(params, tile):
    params = {"inference": "tree_reweighted(n_iter=1)", "learner": "lbfgs(max_iter=1)", "n_labels": 2} | params
    crf = bf.VolumeCRF(**params).fit([image((3, 3, 3))], [np.arange(27).reshape(3, 3, 3) % params["n_labels"]])
    crf.weights_ = np.random.default_rng(1).normal(size=len(crf.weights_))
    x = image((11, 18, 21))
    np.testing.assert_array_equal(crf.predict_proba(x, tile=tile), crf.predict_proba([x])[0])
    np.testing.assert_array_equal(crf.predict([x], tile=tile)[0], crf.predict([x])[0])


class Counted:
    """An array that is read by parts: shape, dtype, and how much of it was read at once."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.largest = array, array.shape, array.dtype, 0

    def __getitem__(self, window):
        part = self.array[window]
        self.largest = max(self.largest, part.size)
        return part


def test_anything_with_a_shape_is_read_by_parts(tmp_path):
    crf = model()
    x = image()
    whole = crf.predict_proba([x])[0]
    lazy = Counted(x)
    np.testing.assert_array_equal(crf.predict_proba(lazy, tile=16), whole)  # one array in the place of a list of them
    assert lazy.largest <= 28 * 28 * 3 < x.size
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(crf.predict_proba(mapped, tile=16), whole)
    stack = np.stack([x, x[::-1]])
    np.testing.assert_array_equal(crf.predict(stack, tile=16)[1], crf.predict(stack)[1])


def test_threads_give_the_same_bits():
    crf = model()
    x = image()
    whole = crf.predict_proba([x])[0]
    np.testing.assert_array_equal(crf.set_params(n_jobs=3).predict_proba([x], tile=15)[0], whole)


def test_workers_give_the_same_bits(tmp_path):
    distributed = pytest.importorskip("distributed")
    crf = model()
    x = image()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = crf.predict_proba([x])[0]
    with distributed.Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        for found in crf.predict_proba([x, mapped, Counted(x)], tile=15, cluster=client):
            np.testing.assert_array_equal(found, whole)


def test_predictions_are_written_by_parts(tmp_path):
    crf = model()
    x = image()
    whole, labels = crf.predict_proba([x])[0], crf.predict([x])[0]
    found = crf.predict(x, tile=16, out=tmp_path / "labels.npy")
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), labels)
    into = np.empty(whole.shape, np.float32)
    assert crf.predict_proba([x], tile=16, out=[into])[0] is into
    np.testing.assert_array_equal(into, whole)
    zarr = pytest.importorskip("zarr")
    crf.predict_proba(x, tile=16, out=tmp_path / "p.zarr")
    p = zarr.open_array(str(tmp_path / "p.zarr"), mode="r")
    assert p.chunks == (16, 16, 2)
    np.testing.assert_array_equal(p[:], whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.npy", "p.zarr"]


def test_a_failed_prediction_leaves_no_file(tmp_path):
    x = image()
    x[30, 40] = np.nan
    with pytest.raises(bf.InputError, match="example 0: features hold NaN"):
        model().predict(x, tile=16, out=tmp_path / "labels.npy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"inference": "tree_reweighted(n_iter=5, tol=1e-4)"}, "runs until the whole image has converged"),
        ({"inference": "loopy_bp(n_iter=5, schedule='sequential')"}, "one after the other"),
        ({"inference": "tree_reweighted(n_iter=5, schedule='monotonic')"}, "one after the other"),
        ({"inference": "smoothed_lp(n_iter=5, choice='random')"}, "one after the other"),
        ({"inference": "exact"}, "looks at the whole image at once"),
        ({"inference": "gibbs"}, "looks at the whole image at once"),
        ({"inference": "tree_reweighted(n_iter=8)"}, "halo of 17 pixels"),
        ({"decoder": "map"}, "looks at the whole image at once"),
        ({"decoder": "expected_f"}, "looks at the whole image at once"),
    ],
)
def test_what_has_no_tiles_says_why(params, words):
    crf = model().set_params(**params)
    with pytest.raises(bf.InputError, match=words) as error:
        crf.predict([image()], tile=16)
    assert str(error.value).count(". ") <= 1 and "\n" not in str(error.value)


def test_behind_a_foreign_classifier_to_1e_6():
    from sklearn.linear_model import LogisticRegression

    x = image((60, 50))
    y = (x[..., 0] + 0.3 * x[..., 1] > 0).astype(int)
    crf = bf.GridCRF(unary=bf.Classifier(LogisticRegression(), cv=2), inference="tree_reweighted(n_iter=2)")
    crf.set_params(learner="lbfgs(max_iter=5)").fit([x[:20], x[20:40]], [y[:20], y[20:40]])
    np.testing.assert_allclose(crf.predict_proba([x], tile=17)[0], crf.predict_proba([x])[0], atol=1e-6)


def test_an_image_without_end_costs_nothing_before_it_is_read():
    from backfield.estimators._tiles import TilePredictor

    class Endless:
        shape, dtype = (10**6, 10**6, 3), np.dtype(np.float32)

        def __getitem__(self, window):
            return image(tuple(part.stop - part.start for part in window), 3)

    tiles = TilePredictor(model()._predictor(), 1000, True, False)
    tiling = tiles.tiling(Endless())
    assert len(tiling) == 10**6 and tiling.halo == (5, 5)
    last = tiling[len(tiling) - 1]
    assert last.core == (slice(999_000, 10**6),) * 2 and last.outer == (slice(998_994, 10**6),) * 2
    assert tiles.cut_piece(Endless(), last, 0, 0)[0][0].shape == (1000, 1000)


def scribbled(shape, seed=0):
    """Return labels of which a few regions are known."""
    rng = np.random.default_rng(seed)
    labels = np.full(shape, -1)
    for _ in range(4):
        at = [int(rng.integers(0, n - 6)) for n in shape]
        window = tuple(slice(a, a + int(rng.integers(1, 6))) for a in at)
        labels[window] = rng.integers(0, 2, labels[window].shape)
    return labels


@pytest.mark.parametrize("loss", ["univariate_logistic", "univariate_quadratic", "smoothed_error(alpha=5)"])
@pytest.mark.parametrize("neighbours", [4, 8])
def test_the_loss_of_crops_is_that_of_the_whole(loss, neighbours):
    from backfield.estimators._training_tiles import labelled_crops

    crf = bf.GridCRF(
        loss=loss,
        inference="tree_reweighted(n_iter=2)",
        dtype="float64",
        neighbours=neighbours,
        learner="lbfgs(max_iter=80)",
        l2=1e-3,  # "auto" measures the features of the rows that it sees
    )
    x, y = [image((50, 64)), image((40, 30), seed=1)], [scribbled((50, 64)), scribbled((40, 30), 1)]
    crops = labelled_crops(crf._settings(), x, y, None, 16)
    assert sum((each >= 0).sum() for each in crops.y) == sum((each >= 0).sum() for each in y)
    assert sum(each.size for each in crops.y) < 0.9 * sum(each.size for each in y)
    whole, parts = crf.problem(x, y), crf.problem(*crops)
    w = np.random.default_rng(0).normal(size=whole.n_weights)
    a, b = whole.value_and_gradient(w), parts.value_and_gradient(w)
    assert a.value == pytest.approx(b.value, rel=1e-12)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-9, atol=1e-12)
    if loss == "univariate_logistic":  # L-BFGS goes another way, as it measures the features of all rows, to the same end
        ends = [crf.fit(x, y, tile=tile).trace_[-1]["objective"] for tile in (16, None)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_learning_reads_labelled_regions_alone():
    x, y = Counted(image((200, 300))), scribbled((200, 300))
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=2)").fit(x, y, tile=32)
    assert x.largest <= 44 * 44 * 3
    assert crf.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"loss": "clique_logistic"}, "is not a sum over variables"),
        ({"loss": "pseudolikelihood"}, "is not a sum over variables"),
        ({"loss": "f_measure"}, "is not a sum over variables"),
        ({"gradient": "backpropagation"}, "use gradient='truncated'"),
        ({"inference": "tree_reweighted(n_iter=9, tol=1e-3)"}, "has converged"),
        ({"class_weight": "balanced"}, "looks at whole images"),
    ],
)
def test_what_cannot_be_learned_by_tiles(params, words):
    with pytest.raises(bf.InputError, match=words):
        bf.GridCRF(**params).fit([image()], [scribbled((37, 53))], tile=16)


def test_bad_labels_of_tiles():
    with pytest.raises(bf.InputError, match="sizes must agree"):
        bf.GridCRF().fit([image()], [np.zeros((3, 3), int)], tile=16)
    with pytest.raises(bf.InputError, match="all labels are hidden"):
        bf.GridCRF().fit([image()], [np.full((37, 53), -1)], tile=16)


@pytest.mark.parametrize("tile", [0, -3, 2.5, "16", (16, 16, 16), True])
def test_bad_tiles(tile):
    with pytest.raises(bf.InputError, match="tile must be"):
        model().predict([image()], tile=tile)


def test_bad_outputs(tmp_path):
    crf, x = model(), image()
    with pytest.raises(bf.InputError, match=r"\.npy or a \.zarr"):
        crf.predict(x, tile=16, out=tmp_path / "labels.png")
    with pytest.raises(bf.InputError, match=r"need \(37, 53\)"):
        crf.predict(x, tile=16, out=np.empty((3, 3)))
    with pytest.raises(bf.InputError, match="give tile, too"):
        crf.predict([x], out=[None])
    with pytest.raises(bf.InputError, match="one array or path for each"):
        crf.predict([x], tile=16, out="labels.npy")


def test_only_images_and_volumes_have_tiles():
    chain = bf.ChainCRF(learner="lbfgs(max_iter=1)").fit([image((6,))], [np.arange(6) % 2])
    with pytest.raises(bf.InputError, match="tiles are for fields on pixels or voxels"):
        chain.predict([image((6,))], tile=3)
