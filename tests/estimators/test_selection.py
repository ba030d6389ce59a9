"""What a default fit decides by held-out labels, and what it says about it."""

import warnings

import numpy as np
import pytest
import sklearn.exceptions

import backfield as bf
from backfield.datasets.generated import add_noise, binary_shapes
from backfield.estimators import _fitting, selection

QUICK = "lbfgs(max_iter=15, tol=1e-3)"


def noisy(count=6, side=16, seed=0):
    masks = [mask for k in range(-(-count // 4)) for mask in binary_shapes(side)][:count]
    return [add_noise(mask, "gaussian", (seed, k)) for k, mask in enumerate(masks)], masks


def random_labels(count=6, side=8, seed=0):
    """Labels that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, 2, (side, side)) for _ in range(count)]
    return [each[..., None] + 0.7 * rng.normal(size=(side, side, 1)) for each in y], y


def test_a_default_fit_chooses_sweeps_and_says_so():
    X, y = noisy()
    crf = bf.GridCRF(learner=QUICK).fit(X, y)
    found = crf.trace_[0]["held_out"]
    assert crf.inference_ in [f"tree_reweighted(n_iter={n})" for n in (5, 10, 20)]
    assert "sweeps of 5, 10" in crf.message_ and "edges enter (" in crf.message_
    losses = {int(n): loss for n, loss in found["sweeps"].items()}
    chosen = int(crf.inference_.removeprefix("tree_reweighted(n_iter=").removesuffix(")"))
    assert chosen == min(n for n, loss in losses.items() if loss <= 1.005 * min(losses.values()))
    assert found["with_edges"] < found["without_edges"]
    # The choice is what predicts, and what a file keeps.
    same = bf.GridCRF(inference=crf.inference_, learner=QUICK, start=crf.weights_).set_params(learner="lbfgs(max_iter=0)")
    np.testing.assert_array_equal(same.fit(X, y).predict_proba(X)[0], crf.predict_proba(X)[0])


def test_the_choice_is_in_the_file(tmp_path):
    X, y = noisy(5, 10)
    crf = bf.GridCRF(learner=QUICK).fit(X, y)
    crf.save(tmp_path / "model.bf")
    again = bf.load(tmp_path / "model.bf")
    assert (again.inference_, again.message_) == (crf.inference_, crf.message_)
    np.testing.assert_array_equal(again.predict_proba(X)[0], crf.predict_proba(X)[0])


@pytest.mark.parametrize("count", [1, 7])
def test_threads_and_resuming_do_not_matter(tmp_path, count):
    X, y = noisy(count, 10)
    plain = bf.GridCRF(learner=QUICK).fit(X, y)
    threads = bf.GridCRF(learner=QUICK, n_jobs=3).fit(X, y)
    np.testing.assert_array_equal(plain.weights_, threads.weights_)

    def stop(iteration, w, row):
        return iteration == 2

    file = tmp_path / "checkpoint"
    bf.GridCRF(learner=QUICK).fit(X, y, checkpoint=file, callbacks=[stop])
    resumed = bf.GridCRF(learner=QUICK).fit(X, y, checkpoint=file, resume=True)
    np.testing.assert_array_equal(plain.weights_, resumed.weights_)
    assert "sweeps of" in resumed.message_


def test_useless_edges_do_not_enter():
    X, y = random_labels(5)
    test, truth = random_labels(20, seed=1)
    crf = bf.GridCRF(learner=QUICK).fit(X, y)
    alone = bf.GridCRF(pairwise="zero", inference="tree_reweighted(n_iter=0)", learner=QUICK).fit(X, y)
    scores = [bf.metrics.neg_log_loss(model, test, truth) for model in (crf, alone)]
    assert scores[0] > scores[1] - 0.01
    assert "edges" in crf.message_


def test_harmful_edges_are_left_out():
    # Labels agree with their neighbours in four images, and alternate in the one that is held out and in the test. There
    # are too many labels for every image to be held out in turn.
    rng = np.random.default_rng(0)
    board = np.indices((15, 15)).sum(axis=0) % 2
    smooth = np.zeros((15, 15), int)
    smooth[:7] = 1

    def image(mask):
        return mask[..., None] + 0.5 * rng.normal(size=(15, 15, 1))

    order = np.random.default_rng(0).permutation(5)
    y = [smooth] * 5
    y[order[0]] = board
    X = [image(mask) for mask in y]
    crf = bf.GridCRF(learner=QUICK).fit(X, y)
    assert crf.trace_[0]["held_out"]["edges"] is False and "edges are left out" in crf.message_
    free = bf.GridCRF(learner=QUICK, guard=False).fit(X, y)
    assert "edges" not in free.message_ and "sweeps" in free.message_
    test = [image(board) for _ in range(3)]
    assert crf.score(test, [board] * 3) > free.score(test, [board] * 3)


def test_learners_of_second_order_go_on_without_edges():
    X, y = random_labels(2, 8)
    crf = bf.GridCRF(learner="smd(epochs=2, batch_size=1)", dtype="float64").fit(X, y)
    assert np.isfinite(crf.weights_).all()
    # The problem of the variables alone has second derivatives, too.
    settings = crf._settings()
    ready = _fitting.prepare(settings, X, y)
    problem = _fitting._trial(settings, ready, None, ready.examples, ready.labelled)
    w, direction = np.random.default_rng(0).normal(size=(2, problem.n_weights))
    seen, product = problem.hessian_vector(w, direction)
    ahead, behind = (problem.value_and_gradient(w + step * direction).gradient for step in (1e-5, -1e-5))
    np.testing.assert_allclose(product, (ahead - behind) / 2e-5, atol=1e-8)
    assert seen.value == pytest.approx(problem.value_and_gradient(w).value)


def test_explicit_inference_is_left_alone():
    X, y = noisy(5, 8)
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=3)", l2=1e-3, learner=QUICK).fit(X, y)
    assert crf.inference_ is None and "held_out" not in crf.trace_[0]
    guarded = bf.GridCRF(inference="mean_field(n_iter=3)", guard=True, learner=QUICK).fit(X, y)
    assert "edges" in guarded.message_ and guarded.inference_ is None
    sweeps = bf.GridCRF(inference="mean_field(n_iter='auto')", learner=QUICK).fit(X, y)
    assert sweeps.inference_.startswith("mean_field(n_iter=") and "edges" not in sweeps.message_
    with pytest.raises(bf.InputError, match="guard must be"):
        bf.GridCRF(guard="maybe").fit(X, y)
    with pytest.raises(bf.InputError, match="chosen by the fit of an estimator"):
        bf.infer(crf.potentials(X[0]), "tree_reweighted(n_iter='auto')")


def few_labels(seed, count=8, width=30):
    """Sequences of few labels and many features, most of which are noise."""
    rng = np.random.default_rng(seed)
    y = [np.repeat(rng.integers(0, 2, 3), 2) for _ in range(count)]
    return [np.column_stack([each + rng.normal(size=6), rng.normal(size=(6, width))]) for each in y], y


def test_few_labels_ask_for_a_stronger_ridge():
    X, y = few_labels(0)
    crf = bf.ChainCRF().fit(X, y)
    losses = {float(factor): loss for factor, loss in crf.trace_[0]["held_out"]["ridge"].items()}
    chosen = float(crf.message_.split(" times the ridge of 1, 3")[0])
    assert chosen >= 3 and losses[chosen] < losses[1]
    # The ridge is what the message says, of the fit of all examples.
    plain = bf.ChainCRF(guard=False).fit(X, y)
    assert "ridge" not in plain.message_
    problem = bf.ChainCRF().problem(X, y)
    problem.penalty = problem.penalty.stronger(problem.task.layout, chosen)
    assert np.linalg.norm(problem.value_and_gradient(crf.weights_).gradient) < 1e-3
    test, truth = few_labels(1, 100)
    assert bf.metrics.neg_log_loss(crf, test, truth) > bf.metrics.neg_log_loss(plain, test, truth)


def test_many_labels_keep_the_ridge():
    X, y = few_labels(0, 100, width=0)
    assert "ridge" not in bf.ChainCRF().fit(X, y).message_
    assert "ridge" not in bf.ChainCRF(l2=1e-3).fit(*few_labels(0)).message_


def test_few_labels_are_all_held_out_in_turn():
    X, y = random_labels(5)
    _, changed = random_labels(5, seed=1)
    order = np.random.default_rng(0).permutation(5)
    before = bf.GridCRF(learner=QUICK).fit(X, y).trace_[0]["held_out"]
    # The label of an example that the first split holds out, and one that the others do.
    for k in (order[0], order[3]):
        other = [changed[k] if j == k else mask for j, mask in enumerate(y)]
        after = bf.GridCRF(learner=QUICK).fit(X, other).trace_[0]["held_out"]
        assert abs(after["without_edges"] - before["without_edges"]) > 0.05


def test_graphs_without_cycles_get_exact_inference():
    rng = np.random.default_rng(0)
    tree = bf.Graph.from_edges([(0, 1), (1, 2), (1, 3)], n_variables=5, labels=2)
    ring = bf.Graph.from_edges([(0, 1), (1, 2), (2, 0)], n_variables=3, labels=2)
    double = bf.Graph.from_edges([(0, 1), (1, 0)], n_variables=3, labels=2)

    def data(graph):
        y = [rng.integers(0, 2, graph.n_variables) for _ in range(6)]
        return [bf.Sample(graph, each[:, None] + rng.normal(size=(len(each), 1))) for each in y], y

    X, y = data(tree)
    crf = bf.GraphCRF(learner=QUICK).fit(X, y)
    assert crf.inference_ == "exact"
    np.testing.assert_allclose(crf.predict_proba(X)[0], bf.infer(crf.potentials(X[0]), "brute_force").unary, atol=1e-5)
    for graph in (ring, double):
        assert bf.GraphCRF(learner=QUICK).fit(*data(graph)).inference_.startswith("tree_reweighted")
    many = [*X, *data(ring)[0]], [*y, *data(ring)[1]]
    assert bf.GraphCRF(learner=QUICK).fit(*many).inference_.startswith("tree_reweighted")
    chains = [rng.normal(size=(4, 2)) for _ in range(6)], [rng.integers(0, 2, 4) for _ in range(6)]
    assert bf.ChainCRF(inference="auto", learner=QUICK).fit(*chains).inference_ == "exact"


def test_parameters_of_the_open_inference_can_be_set():
    crf = bf.GridCRF()
    assert crf.get_params()["inference__n_iter"] == "auto"
    assert crf.set_params(inference__n_iter=7).inference == "tree_reweighted(n_iter=7)"


def test_learners_that_start_by_themselves_and_sets_of_labels_are_not_held_out():
    X, y = noisy(1, 8)
    crf = bf.GridCRF(loss="pseudolikelihood", gradient=None, learner=QUICK).fit(X, y)
    assert crf.inference_ == "tree_reweighted(n_iter=10)" and "held_out" not in crf.trace_[0]
    sets = [np.stack([mask == 0, mask == 1, mask == mask], axis=2) for mask in y]
    assert "too few labels" in bf.GridCRF(learner=QUICK).fit(X, sets).message_


def test_stopping_far_from_the_tolerance_warns():
    X, y = noisy(5, 8)
    far = bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=1)")
    with pytest.warns(bf.ConvergenceWarning, match="times as large as its tolerance"):
        far.fit(X, y)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        far.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=500, tol=1e-3)").fit(X, y)
        bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=1, tol=10.0)").fit(X, y)


def test_partial_fit_keeps_its_inference():
    X, y = noisy(4, 8)
    crf = bf.GridCRF(learner="sgd(epochs=1)")
    for k in range(4):
        crf.partial_fit(X[k : k + 1], y[k : k + 1], classes=[0, 1])
    assert crf.inference_ == "tree_reweighted(n_iter=10)"
    assert crf.predict(X)[0].shape == (8, 8)


def _trial(weights, *losses):
    return selection._Trial(weights, np.array(losses), np.full(len(losses), 1 / len(losses)))


def test_a_trial_is_worse_if_most_groups_say_so():
    plain = _trial([], 1.0, 1.0, 1.0, 1.0)
    assert selection._worse(_trial([], 1.1, 1.2, 1.1, 1.2), plain)
    assert not selection._worse(_trial([], 2.0, 0.9, 0.9, 0.9), plain), "one group of four"
    assert not selection._worse(_trial([], 1.005, 1.005, 1.005, 1.005), plain), "less than a per cent"
    assert not selection._worse(plain, _trial([], 1.1, 1.2, 1.1, 1.2))


@pytest.mark.parametrize("count", [1, 3, 40])
def test_groups_hold_every_held_out_label_once(count):
    X, y = random_labels(count, 12)
    crf = bf.GridCRF()
    ready = _fitting.prepare(crf._settings(), X, y)
    (split,) = selection._splits(ready.problem, 0) if count > 3 else selection._splits(ready.problem, 0)[:1]
    groups = selection._grouped(split, 16)
    assert 16 <= len(groups) <= 18
    assert sum(sum(labelled) for _, labelled in groups) == sum(split.held_labelled)
    assert sum(split.held_labelled) + sum(split.train_labelled) == count * 144


def test_a_field_that_is_too_sure_is_made_less_so():
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(8, 8, labels=3)

    def data(count):
        # A label for the whole image, and features that see it through noise that is the same for all of its pixels.
        y = [np.full(64, rng.integers(3)) for _ in range(count)]
        noise = 1.5 * rng.normal(size=(count, 3))
        return [
            bf.Sample(graph, np.eye(3)[a] + b + 0.1 * rng.normal(size=(64, 3))) for a, b in zip(y, noise, strict=True)
        ], y

    X, y = data(20)
    crf = bf.GraphCRF().fit(X, y)
    scale = crf.trace_[0]["held_out"]["scale"]
    assert scale < 1 and f"all weights times {scale:g}; " in crf.message_
    plain = bf.GraphCRF(inference=crf.inference_, guard=False, l2="auto").fit(X, y)
    test, truth = data(100)
    assert bf.metrics.neg_log_loss(crf, test, truth) > bf.metrics.neg_log_loss(plain, test, truth)
    assert bf.metrics.neg_ece(crf, test, truth) > bf.metrics.neg_ece(plain, test, truth)


def test_weights_stay_as_they_are_where_nothing_is_better():
    X, y = random_labels(6)
    crf = bf.GridCRF().fit(X, y)
    assert crf.trace_[0]["held_out"]["scale"] == 1 and "all weights" not in crf.message_
