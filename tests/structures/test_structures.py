"""Structures: the contract, wrong labels, a structure from outside."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

import backfield as bf
from backfield.cli.app import run
from backfield.data.codecs import decode_labels, encode_labels, input_names
from backfield.registry import get, names
from backfield.structures import Instance, Structure

RNG = np.random.default_rng(0)
EDGES = (RNG.normal(size=(3, 3, 2)), RNG.normal(size=(2, 4, 2)))
MIXED = bf.Graph([2, 3, 2], [(0, 1), (0, 1, 2)])
#: Structure -> entries of X, each with labels.
ENTRIES = {
    "grid": [
        (RNG.normal(size=(3, 4, 2)), np.arange(12).reshape(3, 4) % 2),
        (bf.GridSample(RNG.normal(size=(3, 4, 2)), *EDGES), np.arange(12).reshape(3, 4) % 2),
    ],
    "chain": [
        (RNG.normal(size=(5, 2)), np.array([0, 1, 1, 0, 1])),
        (csr_matrix(RNG.normal(size=(5, 2))), np.array(["a", "b", "", "a", "b"])),
        ([{"word": "x", "bias": 1.0}, {"word": "y"}], np.array(["O", "B"])),
    ],
    "graph": [
        (bf.Sample(MIXED, RNG.normal(size=(3, 2)), node_types=[0, 1, 0], factor_types=[0, 1]), np.array([0, 2, 1])),
        (bf.Sample(bf.Graph.grid(2, 3), csr_matrix(RNG.normal(size=(6, 2))), observed=[-1] * 6), np.zeros(6, int)),
    ],
}
CASES = [(name, *entry) for name, entries in ENTRIES.items() for entry in entries]


def instance(structure, x):
    return structure.sample(x, structure.learn_names([x]))


@pytest.mark.parametrize(("name", "x", "y"), CASES)
def test_contract(name, x, y):
    structure = get("structures", name)
    assert eval(repr(structure), {name: type(structure)}) in (structure, type(structure))
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert [other for other in names("structures") if get("structures", other).holds(x, y)] == [name]
    sample = instance(structure, x)
    graph = structure.graph(sample, 3)
    assert (graph.n_variables, graph.n_factors) == (sample.n_variables, sample.n_factors)
    flat = structure.flat(y, sample)
    assert flat.shape == (graph.n_variables,)
    np.testing.assert_array_equal(structure.shaped(flat, sample), y)
    values = RNG.normal(size=(graph.n_variables, 3))
    assert structure.shaped(values, sample).shape == (*y.shape, 3)
    nodes, factors = structure.blocks(sample)
    assert all(block.n_features == 2 for block in nodes.values()) or name == "chain"
    assert len(factors) <= graph.n_factors


@pytest.mark.parametrize(("name", "x", "y"), CASES)
def test_shards_hold_every_entry(name, x, y, tmp_path):
    structure = get("structures", name)
    arrays = structure.codec.encode(x) | encode_labels(y)
    known = input_names(set(arrays))
    back = instance(structure, structure.codec.decode(known, arrays.__getitem__))
    sample = instance(structure, x)
    assert back.shape == sample.shape and back.n_factors == sample.n_factors
    assert (back.node_features != sample.node_features).sum() == 0
    np.testing.assert_array_equal(decode_labels(set(arrays), arrays.__getitem__), y)
    shards = bf.write_shards(tmp_path / "p", [x], [y])
    assert shards.kind == name
    np.testing.assert_array_equal(shards.y[0], y)


WRONG = [
    ("grid", (4, 3)),  # transposed
    ("grid", (12,)),
    ("grid", (4, 3, 2)),  # allowed labels, transposed
    ("grid", (2, 3, 4)),
    ("chain", (4,)),
    ("chain", (2, 5)),
    ("graph", (4,)),
]


@pytest.mark.parametrize(("name", "shape"), WRONG)
def test_labels_of_another_shape_are_refused(name, shape):
    structure, x = get("structures", name), ENTRIES[name][0][0]
    y = np.zeros(shape, dtype=bool if len(shape) == 1 + ENTRIES[name][0][1].ndim else int)
    with pytest.raises(bf.InputError, match=r"shape \(") as caught:
        structure.flat(y, instance(structure, x))
    assert "\n" not in str(caught.value)


def test_transposed_masks_are_refused_by_fit_score_and_marginals():
    X = [RNG.normal(size=(4, 6, 2)) for _ in range(3)]
    Y = [(x[:, :, 0] > 0).astype(int) for x in X]
    crf = bf.GridCRF(learner="lbfgs(max_iter=2)")
    sizes = r"labels have shape \(6, 4.*\) and the image \(4, 6\); sizes must agree"
    with pytest.raises(bf.InputError, match=f"example 0: {sizes}"):
        crf.fit(X, [y.T for y in Y])
    allowed = [np.stack([y == 0, y == 1], axis=-1) for y in Y]
    with pytest.raises(bf.InputError, match=f"example 0: {sizes}"):
        crf.fit(X, [mask.transpose(1, 0, 2) for mask in allowed])
    crf.fit(X, Y)
    with pytest.raises(bf.InputError, match=f"example 1: {sizes}"):
        crf.score(X, [Y[0], Y[1].T, Y[2]])
    with pytest.raises(bf.InputError, match=sizes):
        crf.marginals(X[0], given=Y[0].T)
    assert crf.marginals(X[0], given=Y[0]).unary.max() == 1


@dataclass(frozen=True, repr=False)
class Ring(Structure, name="test_ring"):
    """Closed chains, whose weights may differ at the seam."""

    seam: bool = False

    def sample(self, x, names=None):
        x = np.asarray(x)
        types = np.zeros(len(x), dtype=int)
        types[-1] = self.seam
        return Instance((len(x),), len(x), x, factor_types=types)

    def graph(self, sample, n_labels):
        t = np.arange(sample.n_variables)
        edges = np.stack([t, (t + 1) % len(t)], axis=1)
        return bf.Graph.from_edges(edges, n_variables=len(t), labels=n_labels)


class RingCRF(bf.CRF, structure="test_ring", defaults={"inference": "exact"}):
    """Labels of rings."""


@pytest.fixture
def rings():
    X = [RNG.normal(size=(4 + k % 3, 2)) for k in range(8)]
    return X, [(x[:, 0] > 0).astype(int) for x in X]


def test_a_structure_from_outside(rings, tmp_path):
    X, Y = rings
    crf = bf.CRF(structure="test_ring", learner="lbfgs(max_iter=5)").fit(X, Y)
    assert crf.score(X, Y) > 0.7 and crf.get_params()["structure__seam"] is False
    assert len(crf.layout_.factors) == 1
    more = clone(crf).set_params(structure__seam=True).fit(X, Y)
    assert more.structure == "test_ring(seam=True)" and len(more.layout_.factors) == 2
    shards = bf.write_shards(tmp_path / "p", X, Y, structure="test_ring")
    assert clone(crf).fit(shards).weights_.tobytes() == crf.weights_.tobytes()
    crf.save(tmp_path / "m.bf")
    again = bf.load(tmp_path / "m.bf")
    assert again.structure == "test_ring"
    np.testing.assert_array_equal(again.predict_proba(X)[3], crf.predict_proba(X)[3])


def test_an_estimator_with_a_fixed_structure(rings, tmp_path):
    X, Y = rings
    crf = RingCRF(seam=True, learner="lbfgs(max_iter=5)")
    assert crf.get_params(deep=False)["seam"] is True and "structure" not in crf.get_params()
    assert repr(crf) == "RingCRF(learner='lbfgs(max_iter=5)', seam=True)" and crf.inference == "exact"
    assert clone(crf).get_params() == crf.get_params()
    crf.fit(X, Y)
    assert len(crf.layout_.factors) == 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(crf)).predict(X)[0], crf.predict(X)[0])
    crf.save(tmp_path / "m.bf")
    again = bf.load(tmp_path / "m.bf")  # the class is not one of the package's; its structure is known
    assert type(again) is bf.CRF and again.structure == "test_ring(seam=True)"
    np.testing.assert_array_equal(again.predict_proba(X)[3], crf.predict_proba(X)[3])
    with pytest.raises(TypeError, match="structure"):
        RingCRF(structure="chain")


def test_a_structure_from_outside_in_the_shell(tmp_path, capsys):
    X = RNG.normal(size=(6, 5, 2))
    np.savez(tmp_path / "rings.npz", X=X, y=(X[..., 0] > 0).astype(int))
    data, model, packed = str(tmp_path / "rings.npz"), str(tmp_path / "m.bf"), str(tmp_path / "p")
    options = ["--learner", "lbfgs(max_iter=5)", "--quiet"]
    assert run(["fit", data, "--model", "test_ring(seam=True)", *options, "-o", model]) == 0
    crf = bf.load(model)
    assert crf.structure_ == Ring(seam=True) and len(crf.layout_.factors) == 2
    assert run(["predict", model, data, "-o", str(tmp_path / "out.npz"), "--proba"]) == 0
    found = np.load(tmp_path / "out.npz")
    assert found["y"].shape == (6, 5) and found["probabilities"].shape == (6, 5, 2)
    assert run(["evaluate", model, data, "--json"]) == 0
    assert run(["pack", data, "-o", packed, "--model", "test_ring", "--like", model, "--n-jobs", "1", "--quiet"]) == 0
    assert bf.open_shards(packed).kind == "test_ring"
    capsys.readouterr()
    assert run(["fit", data, "--model", "nonsense", *options, "-o", model]) == 2
    assert "there is no 'nonsense' in structures" in capsys.readouterr().err


def test_a_failed_or_interrupted_refit_leaves_the_model_as_it_was():
    X = [RNG.normal(size=(5, 6, 2)) for _ in range(3)]
    Y = [(x[:, :, 0] > 0).astype(int) for x in X]
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=5)", learner="lbfgs(max_iter=5)", guard=False).fit(X, Y)
    before = crf.predict_proba(X)

    def interrupt(iteration, w, row):
        raise KeyboardInterrupt

    other = [np.concatenate([x, x], axis=2) for x in X]
    refits = [
        (KeyboardInterrupt, lambda: crf.fit(other, [2 * y + (x[:, :, 1] > 0) for x, y in zip(X, Y, strict=True)],
                                            callbacks=[interrupt])),
        (bf.InputError, lambda: crf.fit(other, [y.T for y in Y])),
        (bf.InputError, lambda: crf.set_params(l2=-1).fit(other, Y)),
    ]  # fmt: skip
    for error, refit in refits:
        with pytest.raises(error):
            refit()
        assert crf.classes_.tolist() == [0, 1] and crf.n_features_in_ == 2
        assert len(crf.weights_) == crf.layout_.n_weights
        for mine, theirs in zip(crf.predict_proba(X), before, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_inside_a_callback_the_estimator_is_the_model_so_far():
    X = [RNG.normal(size=(5, 6, 2)) for _ in range(3)]
    Y = [(x[:, :, 0] > 0).astype(int) for x in X]
    crf, seen = bf.GridCRF(learner="lbfgs(max_iter=3)", start="zero"), []

    def look(iteration, w, row):
        seen.append((np.array_equal(crf.weights_, w), crf.score(X, Y)))

    crf.fit(X, Y, callbacks=[look])
    assert len(seen) == 4 and all(same for same, _ in seen) and seen[-1][1] == crf.score(X, Y)


def test_a_failed_partial_fit_leaves_the_model_as_it_was():
    X = [RNG.normal(size=(5, 6, 2)) for _ in range(3)]
    Y = [(x[:, :, 0] > 0).astype(int) for x in X]
    crf = bf.GridCRF(learner="sgd(step_size=0.1)").partial_fit(X, Y, classes=[0, 1])
    before = crf.weights_.copy()
    with pytest.raises(bf.InputError, match="example 1: the label 7 is not among the classes"):
        crf.partial_fit(X, [Y[0], Y[1] + 7, Y[2]])
    np.testing.assert_array_equal(crf.weights_, before)


def test_the_steps_of_a_grid_are_computed_once():
    structure = get("structures", "grid(neighbours=8)")
    assert structure.steps is structure.steps and structure == get("structures", "grid(neighbours=8)")
