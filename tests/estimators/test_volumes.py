"""Estimators on volumes, and on images with other neighbourhoods than the four."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import backfield as bf
from backfield.graph.lattice import inside
from backfield.registry import get


def blobs(shape, seed, noise=1.0):
    """A smooth binary labeling, and its noisy picture."""
    rng = np.random.default_rng(seed)
    y = (gaussian_filter(rng.normal(size=shape), 1.5) > 0).astype(int)
    return (y + noise * rng.normal(size=shape))[..., None].astype(np.float32), y


VOLUMES = [blobs((6, 7, 8), seed) for seed in range(3)] + [blobs((5, 9, 6), 3)]
X, Y = [x for x, _ in VOLUMES], [y for _, y in VOLUMES]
QUICK = {"inference": "tree_reweighted(n_iter=3)", "learner": "lbfgs(max_iter=8)", "l2": 1e-4}


@pytest.mark.parametrize("params", [{}, {"neighbours": 26}, {"spacing": (1, 1, 5), "neighbours": 18, "contrast": True}])
def test_a_field_on_volumes_helps_and_is_kept(params, tmp_path):
    alone = bf.VolumeCRF(pairwise="zero", **QUICK).fit(X[:3], Y[:3])
    crf = bf.VolumeCRF(**params, **QUICK).fit(X[:3], Y[:3])
    assert crf.score(X, Y) > alone.score(X, Y) + 0.05
    (p,) = crf.predict_proba(X[3:])
    assert p.shape == (5, 9, 6, 2) and np.allclose(p.sum(axis=-1), 1)
    crf.save(tmp_path / "model.bf")
    again = bf.load(tmp_path / "model.bf")
    assert isinstance(again, bf.VolumeCRF) and again.structure_ == crf.structure_
    np.testing.assert_array_equal(again.predict_proba(X[3:])[0], p)


def test_weights_per_offset_or_shared():
    own = bf.VolumeCRF(neighbours=18, **QUICK).fit(X[:2], Y[:2])
    shared = bf.VolumeCRF(neighbours=18, spacing=(1, 1, 1), **QUICK).fit(X[:2], Y[:2])
    assert len(own.layout_.factors) == 9 and len(shared.layout_.factors) == 1
    assert shared.layout_.factors[0].n_features == 1


def test_inverse_distances():
    structure = get("structures", "volume(neighbours=26, spacing=(50, 4, 4))")
    sample = structure.sample(np.zeros((2, 2, 2, 1)))
    sizes = [group.n_factors for group in structure.graph(sample, 2).groups]
    expected = [4 / np.linalg.norm(np.array(step) * (50, 4, 4)) for step in structure.steps]
    np.testing.assert_allclose(sample.factor_features[:, 0], np.repeat(expected, sizes))


def test_contrast_is_the_distance_of_the_ends():
    x = np.random.default_rng(0).integers(0, 255, size=(4, 5, 3)).astype(np.uint8)
    structure = get("structures", "grid(neighbours=8, contrast=True)")
    sample = structure.sample(x)
    flat = x.reshape(-1, 3).astype(float)
    first, second = structure.graph(sample, 2).factors.T
    np.testing.assert_allclose(sample.factor_features[:, 0], np.linalg.norm(flat[first] - flat[second], axis=1), rtol=1e-6)
    assert x[inside((4, 5), (1, -1), 0)].shape == (3, 4, 3)


def test_images_with_eight_neighbours():
    images, masks = zip(*(blobs((12, 14), seed) for seed in range(3)), strict=True)
    crf = bf.GridCRF(neighbours=8, **QUICK).fit(images, masks)
    assert len(crf.layout_.factors) == 4 and crf.potentials(images[0]).graph == bf.Graph.grid(12, 14, neighbours=8)
    same = bf.GridCRF(offsets=[[0, 1], [1, 0], [1, 1], [1, -1]], **QUICK).fit(images, masks)
    np.testing.assert_array_equal(crf.weights_, same.weights_)


def test_weights_are_those_of_graphs_with_types():
    """The same through GraphCRF, which is told the types of edges."""
    crf = bf.VolumeCRF(neighbours=26, **QUICK).fit(X[:2], Y[:2])
    graph = bf.Graph.grid((6, 7, 8), neighbours=26)
    types = np.repeat(np.arange(13), [group.n_factors for group in graph.groups])
    samples = [bf.Sample(graph, x.reshape(-1, 1), factor_types=types) for x in X[:2]]
    other = bf.GraphCRF(**QUICK).fit(samples, [y.ravel() for y in Y[:2]])
    np.testing.assert_array_equal(crf.weights_, other.weights_)


def test_numbers_of_numpy_are_saved(tmp_path):
    spacing = tuple(np.float32(each) for each in (1, 1, 5))
    crf = bf.VolumeCRF(spacing=spacing, **QUICK).fit(X[:1], Y[:1])
    crf.save(tmp_path / "model.bf")
    assert bf.load(tmp_path / "model.bf").spacing == [1.0, 1.0, 5.0]


def test_packed_folders_take_the_neighbourhood_that_is_asked_for(tmp_path):
    shards = bf.write_shards(tmp_path / "packed", X, Y, structure="volume")
    one = bf.VolumeCRF(neighbours=18, **QUICK).fit(shards)
    np.testing.assert_array_equal(one.weights_, bf.VolumeCRF(neighbours=18, **QUICK).fit(X, Y).weights_)


BAD = {
    "spacing 0": (lambda: bf.VolumeCRF(spacing=(1, 1, 0)).fit(X, Y), r"3 positive numbers.*received \(1, 1, 0\)"),
    "spacing of two": (lambda: bf.VolumeCRF(spacing=(1, 1)).fit(X, Y), "3 positive numbers"),
    "spacing NaN": (lambda: bf.VolumeCRF(spacing=(1, 1, np.nan)).fit(X, Y), "3 positive numbers"),
    "8 in 3-D": (lambda: bf.VolumeCRF(neighbours=8).fit(X, Y), "6, 18 or 26 neighbours, received 8"),
    "zero": (lambda: bf.VolumeCRF(offsets=[(0, 0, 0)]).fit(X, Y), "joins a variable to itself"),
    "images": (
        lambda: bf.VolumeCRF().fit([np.zeros((4, 5))], [np.zeros((4, 5), int)]),
        r"shape \(D, H, W, F\), received \(4, 5\)",
    ),
    "strings": (lambda: bf.VolumeCRF().fit([np.full((2, 2, 2), "a")], [np.zeros((2, 2, 2), int)]), "must hold numbers"),
    "labels": (lambda: bf.VolumeCRF().fit(X[:1], [Y[0][0]]), r"example 0: labels must be integers of shape \(6, 7, 8\)"),
    "samples": (
        lambda: bf.GridCRF(neighbours=8).fit([bf.GridSample(np.zeros((2, 2, 1)), 0, 0)], [np.zeros((2, 2), int)]),
        "needs a grid of 4 neighbours",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call, message):
    with pytest.raises(bf.InputError, match=message):
        call()
