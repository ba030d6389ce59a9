"""Chains in which a label sees the two before it, against enumeration."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

import backfield as bf
from backfield.graph.builders import chains as chain_graph
from backfield.graph.chains import second_order
from backfield.inference.exact.order_two import order_two_sums
from tests.estimators.test_sequences import spans

TAGS = ["B-P", "I-P", "O"]
CONSTRAINTS = [None, "BIO", [("O", "O"), (None, "I-P"), ("B-P", None)]]


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 2)) for n in (5, 1, 3, 2, 4)]
    Y = [["B-P", "I-P", "O", "B-P", "I-P"], ["O"], ["O", "B-P", "I-P"], ["B-P", "I-P"], ["B-P", "I-P", "I-P", "O"]]
    return X, Y


def model(constraints=None, seed=0, scale=1.5, **params):
    X, Y = data(seed)
    if isinstance(constraints, list):
        Y[1] = [None]
    crf = bf.ChainCRF(order=2, constraints=constraints, learner="lbfgs(max_iter=1)", **params).fit(X, Y)
    crf.weights_ = scale * np.random.default_rng(seed).normal(size=len(crf.weights_))
    return crf, X, Y


def scores(crf, x):
    """Score of every labeling, from the weights alone."""
    w, count = crf.weights_, len(crf.classes_)
    unary, at = x @ w[: 2 * count].reshape(2, count) + w[2 * count : 3 * count], 3 * count
    two = w[at : at + count**2].reshape(count, count)
    three = w[at + count**2 :].reshape(count, count, count)
    rules = crf.structure_.rules(crf.classes_)
    out = {}
    for y in itertools.product(range(count), repeat=len(x)):
        if rules is not None and (
            rules.start[y[0]] or rules.end[y[-1]] or any(rules.table[p] for p in itertools.pairwise(y))
        ):
            continue
        total = sum(unary[t, k] for t, k in enumerate(y)) + sum(two[p] for p in itertools.pairwise(y))
        out[y] = total + sum(three[y[t : t + 3]] for t in range(len(y) - 2))
    return out


def probabilities(crf, x):
    found = scores(crf, x)
    log_z = logsumexp(list(found.values()))
    return {y: np.exp(value - log_z) for y, value in found.items()}, log_z


cases = pytest.mark.parametrize("constraints", CONSTRAINTS)


@cases
def test_answers_against_enumeration(constraints):
    crf, X, _ = model(constraints, decoder="map")
    seen = 0
    for x in X:
        every, log_z = probabilities(crf, x)
        ranked = sorted(every.items(), key=lambda item: -item[1])
        mu = np.zeros((len(x), 3))
        for y, p in every.items():
            mu[np.arange(len(x)), list(y)] += p
        np.testing.assert_allclose(crf.predict_proba([x])[0], mu, atol=1e-10)
        assert abs(crf.marginals(x).log_partition - log_z) < 1e-10
        np.testing.assert_allclose(crf.marginals(x).unary, mu, atol=1e-10)
        assert crf.predict([x])[0].tolist() == [TAGS[k] for k in ranked[0][0]]
        found = crf.predict_best([x], k=6)[0]
        np.testing.assert_allclose([p for _, p in found], [p for _, p in ranked[:6]], atol=1e-10)
        assert [y.tolist() for y, _ in found] == [[TAGS[k] for k in y] for y, _ in ranked[:6]]
        assert abs(crf.entropy([x])[0] + sum(p * np.log(p) for p in every.values() if p > 0)) < 1e-10
        named = {tuple(TAGS[k] for k in y): p for y, p in every.items()}
        best = tuple(found[0][0])
        for span in crf.predict_spans([x])[0]:
            this = (span.start, span.stop, best[span.start : span.stop])
            assert abs(span.probability - sum(p for y, p in named.items() if this in spans(y))) < 1e-10
            seen += 1
    assert seen > 1


@cases
@pytest.mark.parametrize("partial", [False, True])
def test_likelihood_and_gradient(constraints, partial):
    crf, X, Y = model(constraints)
    if partial:
        Y[0], Y[4] = ["B-P", None, {"O", "I-P"}, "B-P", "I-P"], [{"B-P", "O"}, None, "I-P", "O"]
    problem = crf.set_params(l2=0.0).problem(X, Y)
    assert problem.evaluator.runs.merge
    expected = 0.0
    for x, y in zip(X, Y, strict=True):
        found = scores(crf, x)
        sets = [TAGS if tag is None else [tag] if isinstance(tag, str) else tag for tag in y]
        allowed = set(itertools.product(*[[TAGS.index(tag) for tag in each] for each in sets]))
        expected += logsumexp(list(found.values())) - logsumexp([v for k, v in found.items() if k in allowed])
    known = sum(tag is not None for y in Y for tag in y)
    here = problem.value_and_gradient(crf.weights_)
    assert abs(here.value - expected / known) < 1e-10
    direction, step = np.random.default_rng(5).normal(size=problem.n_weights), 1e-5
    values = [problem.value_and_gradient(crf.weights_ + s * direction).value for s in (-step, step)]
    slope = (values[1] - values[0]) / (2 * step)
    assert abs(here.gradient @ direction - slope) < 1e-7 * max(1, abs(slope))


@cases
def test_samples(constraints):
    crf, X, _ = model(constraints)
    every, _ = probabilities(crf, X[2])
    drawn = crf.sample(X[2:3], n=3000)[0]
    counts = dict.fromkeys(every, 0)
    for y in drawn:
        counts[tuple(TAGS.index(tag) for tag in y)] += 1
    assert max(abs(counts[y] / 3000 - p) / np.sqrt(p * (1 - p) / 3000 + 1e-9) for y, p in every.items() if p > 1e-3) < 5


def test_scores_of_any_size_are_safe():
    for scale in (60, 1000):
        crf, X, _ = model(scale=scale)
        for x in X:
            every, log_z = probabilities(crf, x)
            mu = np.zeros((len(x), 3))
            for y, p in every.items():
                mu[np.arange(len(x)), list(y)] += p
            np.testing.assert_allclose(crf.predict_proba([x])[0], mu, atol=1e-8)
            assert abs(crf.marginals(x).log_partition - log_z) < 1e-8 * scale


def test_both_ways_to_the_sums_agree():
    rng = np.random.default_rng(0)
    graph = chain_graph((4, 1, 2, 6), 3, 2)
    assert second_order(graph).starts.tolist() == [0, 4, 5, 7, 13]
    for size in (1.0, 40.0):
        groups = [bf.Tied(size * rng.normal(size=(3,) * k)) for k in (2, 3)]
        theta = bf.Potentials(graph, size * rng.normal(size=(13, 3)), groups=groups)
        fast, slow = order_two_sums(theta), bf.infer(theta, "exact")
        assert abs(fast.log_partition - slow.log_partition) < 1e-9
        np.testing.assert_allclose(fast.mu, slow.unary, atol=1e-10)
        pairs = sum(table for table in slow.factors if table.ndim == 2)
        triples = sum(table for table in slow.factors if table.ndim == 3)
        np.testing.assert_allclose(fast.pairs, pairs, atol=1e-9)
        np.testing.assert_allclose(fast.triples, triples, atol=1e-9)
        best = bf.find_map(theta, "viterbi")
        assert best.optimal and abs(best.value - bf.find_map(theta.written_out(), "viterbi").value) < 1e-9
        assert theta.score(best.labels) == best.value


def test_learning_a_rule_of_order_two(tmp_path):
    rng = np.random.default_rng(1)
    Y = []
    for _ in range(40):
        y = list(rng.integers(0, 2, size=2))
        while len(y) < 12:
            y.append(int(y[-1] ^ y[-2]) if rng.random() < 0.95 else int(rng.integers(2)))
        Y.append(np.array(y))
    X = [np.where(rng.random((len(y), 1)) < 0.6, y[:, None], 0.5) for y in Y]
    first, second = (bf.ChainCRF(order=k, l2=1e-4).fit(X, Y) for k in (1, 2))
    assert second.score(X, Y) > first.score(X, Y) + 0.05
    second.save(tmp_path / "m.bf")
    again = bf.load(tmp_path / "m.bf")
    for p, q in zip(second.predict_proba(X), again.predict_proba(X), strict=True):
        np.testing.assert_array_equal(p, q)
    given = second.marginals(X[0], given=[0, -1, 1, *[-1] * 9])
    assert given.unary[0, 0] == 1 and given.unary[2, 1] == 1


@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_logistic", "pseudolikelihood", "max_margin"])
def test_other_losses(loss):
    X, Y = data()
    problem = bf.ChainCRF(order=2, loss=loss, constraints="BIO").problem(X, Y)
    w, direction = np.random.default_rng(3).normal(size=(2, problem.n_weights))
    values = [problem.value_and_gradient(w + s * direction).value for s in (-1e-5, 1e-5)]
    slope = (values[1] - values[0]) / 2e-5
    assert abs(problem.value_and_gradient(w).gradient @ direction - slope) < 1e-6 * max(1, abs(slope))


@pytest.mark.parametrize("order", [0, 3, "2", True])
def test_other_orders_are_refused(order):
    with pytest.raises(bf.InputError, match="order must be 1 or 2"):
        bf.ChainCRF(order=order).fit(*data())
