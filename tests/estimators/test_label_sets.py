"""Chains whose labels are known in part: sets of possible labels, None where a label is hidden."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield.data.codecs import decode_labels, encode_labels

TAGS = ["B-P", "I-P", "O"]


def valid(tags):
    return all(tag != "I-P" or (t > 0 and tags[t - 1] in ("B-P", "I-P")) for t, tag in enumerate(tags))


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 2)) for n in (4, 3, 1, 5)]
    Y = [
        [{"B-P", "O"}, {"I-P", "O"}, None, "O"],
        ["B-P", "I-P", "O"],
        [{"O"}],
        [None, {"O", "I-P"}, ["B-P", "I-P"], "", "O"],
    ]
    return X, Y


def possible(y):
    sets = [TAGS if not tag else [tag] if isinstance(tag, str) else tag for tag in y]
    return itertools.product(*sets)


@pytest.mark.parametrize("constraints", [None, "BIO", [(None, "O"), ("B-P", "B-P"), ("B-P", None)]])
def test_the_likelihood_sums_over_the_sets(constraints):
    X, Y = data()
    if isinstance(constraints, list):
        Y[2] = [{"I-P", "B-P"}]
    crf = bf.ChainCRF(constraints=constraints, l2=0.0)
    problem = crf.problem(X, Y)
    crf.set_params(learner="lbfgs(max_iter=1)").fit(X, Y)
    assert crf.classes_.tolist() == TAGS
    rng = np.random.default_rng(1)
    w, direction = rng.normal(size=(2, problem.n_weights))
    crf.weights_ = w
    expected, labelled = 0.0, 3 + 3 + 1 + 3
    for x, y in zip(X, Y, strict=True):
        theta = crf.potentials(x)
        scores = {tags: theta.score(np.array([TAGS.index(t) for t in tags])) for tags in possible([None] * len(x))}
        chosen = [scores[tags] for tags in possible(y)]
        expected += np.logaddexp.reduce(list(scores.values())) - np.logaddexp.reduce(chosen)
    assert abs(problem.value_and_gradient(w).value - expected / labelled) < 1e-10
    step = 1e-5
    slope = np.diff([problem.value_and_gradient(w + s * direction).value for s in (-step, step)])[0] / (2 * step)
    assert abs(problem.value_and_gradient(w).gradient @ direction - slope) < 1e-7 * max(1, abs(slope))


def test_sets_are_the_masks_of_their_labels():
    X, Y = data()
    masks = [np.array([[t in (TAGS if not s else [s] if isinstance(s, str) else s) for t in TAGS] for s in y]) for y in Y]
    sets = bf.ChainCRF(l2=1e-2).fit(X, Y)
    np.testing.assert_array_equal(sets.weights_, bf.ChainCRF(l2=1e-2).fit(X, masks).weights_)


def test_observed_pairs_are_those_of_the_members():
    X = [[{"w": "a"}, {"w": "b"}, {"w": "c"}]]
    crf = bf.ChainCRF(unary="observed_linear").fit(X, [[{"x", "y"}, "z", None]])
    energy = crf.layout_.unary[0].energy
    assert energy.ptr.tolist() == [0, 2, 3, 3] and energy.labels.tolist() == [0, 1, 2]


def test_score_and_given():
    X, Y = data()
    crf = bf.ChainCRF(l2=1e-2).fit(X, Y)
    found = crf.predict(X)
    right = [
        f in ([s] if isinstance(s, str) else s)
        for y, g in zip(Y, found, strict=True)
        for f, s in zip(g, y, strict=True)
        if s
    ]
    assert crf.score(X, Y) == np.mean(right)
    p = crf.marginals(X[0], given=[{"B-P", "O"}, None, "O", None]).unary
    assert p[0, 1] == 0 and p[2, 2] == pytest.approx(1, abs=1e-14) and p[1].min() > 0


def test_none_is_hidden_for_every_loss():
    X = [np.eye(3), np.eye(3)]
    crf = bf.ChainCRF(loss="pseudolikelihood").fit(X, [[0, None, 2], [1, 1, 0]])
    same = bf.ChainCRF(loss="pseudolikelihood").fit(X, [[0, -1, 2], [1, 1, 0]])
    np.testing.assert_array_equal(crf.weights_, same.weights_)


def test_packed_labels_come_back():
    for y in ([{"a", "b"}, None, "c"], [{1, 0}, None, 2]):
        arrays = encode_labels(y)
        assert decode_labels(set(arrays), arrays.__getitem__) == [frozenset({*y[0]}), None, frozenset({y[2]})]


@pytest.mark.parametrize(
    ("y", "constraints", "match"),
    [
        ([set(), "O", "O"], None, "position 0: a set of labels needs at least one"),
        ([{"", "O"}, "O", "O"], None, "no hidden one"),
        ([{1.5}, "O", "O"], None, "a string or an integer, received 1.5"),
        ([{"O"}, 1, None], None, "received both"),
        ([{"O"}, None], None, "2 labels and 3 positions"),
        ([None, None, None], None, "all labels are hidden"),
        (["O", {"I-P"}, {"I-P", "B-P"}], "BIO", r"O -> I-P at position 1 break"),
        ([{"O", "I-P"}, {"I-P"}, "B-P"], "BIO", "up to position 1 leave keep the constraints"),
    ],
)
def test_what_cannot_be_is_refused(y, constraints, match):
    with pytest.raises(bf.InputError, match=match):
        bf.ChainCRF(constraints=constraints).fit([np.ones((3, 1))], [y])


@pytest.mark.parametrize("constraints", ["BIO", [("O", "O"), ("B-P", "B-P"), (None, "I-P"), ("O", None)]])
def test_max_marginal_keeps_constraints(constraints):
    rng, repaired = np.random.default_rng(2), 0
    Y = [["B-P", "I-P", "O", "B-Q", "I-Q"]]
    crf = bf.ChainCRF(constraints=constraints).fit([rng.normal(size=(5, 2))], Y)
    tags = crf.classes_.tolist()
    for _ in range(150):
        crf.weights_ = rng.normal(size=len(crf.weights_))
        x = rng.normal(size=(3, 2))
        theta, p = crf.potentials(x), crf.predict_proba([x])[0]
        found = [tags.index(tag) for tag in crf.predict([x])[0]]
        allowed = [y for y in itertools.product(range(5), repeat=3) if theta.score(np.array(y)) > -np.inf]
        best = max(allowed, key=lambda y: sum(np.log(p[t, k]) for t, k in enumerate(y)))
        assert tuple(found) == best
        repaired += found != p.argmax(axis=1).tolist()
    assert repaired > 0


def test_decoders_that_do_not_keep_constraints_are_refused():
    crf = bf.ChainCRF(constraints=[(1, 1)], decoder="balanced_threshold")
    with pytest.raises(bf.InputError, match="does not keep constraints"):
        crf.fit([np.eye(3)], [[0, 1, 0]])


def test_a_checkpoint_of_other_constraints_is_refused(tmp_path):
    X, Y = data()
    crf = bf.ChainCRF(constraints="BIO", learner="lbfgs(max_iter=2)")
    crf.fit(X, Y, checkpoint=tmp_path / "c")
    with pytest.raises(bf.InputError, match="constraints"):
        crf.set_params(constraints=[("O", "I-P")]).fit(X, Y, checkpoint=tmp_path / "c", resume=True)
