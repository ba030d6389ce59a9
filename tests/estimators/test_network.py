"""Networks as energies: right gradients, trained together with the field, the same bytes for any n_jobs, saved as arrays."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import backfield as bf
from backfield.training.weights import WeightLayout

torch = pytest.importorskip("torch")


class Pixels(torch.nn.Module):
    """(H, W, F) -> (H, W, L) by two convolutions."""

    def __init__(self, features=1, labels=2, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Conv2d(features, 4, 3, padding=1)
        self.second = torch.nn.Conv2d(4, labels, 1)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        x = torch.tanh(self.first(self.scale * x.permute(2, 0, 1)[None]))
        return self.second(x)[0].permute(1, 2, 0)


def rows(features, outputs, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(features, 5), torch.nn.Tanh(), torch.nn.Linear(5, outputs))


def images(count=6, seed=0):
    """Checkerboards (1) beside plain stripes (0), in noise: single pixels tell nothing, a neighbourhood does."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for k in range(count):
        shape = (8 + k % 3, 9)
        row, column = np.indices(shape)
        Y.append(((column > 2 + k % 4) != k // 2 % 2).astype(int))
        X.append((np.where(Y[-1], (row + column) % 2, row % 2) - 0.5 + 0.1 * rng.normal(size=shape))[..., None])
    return X, Y


SGD = "sgd(epochs=6, optimizer='adam', step_size=0.02)"


def test_gradient_against_differences():
    X, Y = images(2)
    edge = [bf.GridSample(x, np.abs(x[:, 1:] - x[:, :-1]), np.abs(x[1:] - x[:-1])) for x in X]
    crf = bf.GridCRF(unary=Pixels(), pairwise=rows(1, 4), dtype="float64", learner="sgd(epochs=1)", l2=1e-2)
    problem = crf.problem(edge, Y)
    w = problem.task.layout.start() + 0.1 * np.random.default_rng(0).normal(size=problem.n_weights)
    assert len(w) == 40 + 10 + 2 * 34  # a network per direction of edges
    direction = np.random.default_rng(1).normal(size=len(w))
    found = problem.value_and_gradient(w).gradient @ direction
    f = [problem.value_and_gradient(w + t * direction).value for t in (2e-4, -2e-4)]
    assert found == pytest.approx((f[0] - f[1]) / 4e-4, rel=1e-6)


def test_a_convolution_trained_with_the_field_beats_pixels():
    X, Y = images(8)
    module = Pixels()
    before = copy.deepcopy(module.state_dict())
    crf = bf.GridCRF(unary=bf.Network(module), learner="sgd(epochs=25, optimizer='adam', step_size=0.03)").fit(X, Y)
    more, truth = images(4, seed=9)
    assert crf.score(more, truth) > bf.GridCRF(learner="lbfgs(max_iter=30)").fit(X, Y).score(more, truth) + 0.1
    assert crf.trace_[-1]["objective"] < crf.trace_[0]["objective"]
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])  # the user's module is not touched
    fitted = crf.fitted_module()
    assert not torch.equal(fitted.first.weight, module.first.weight)
    theta = crf.potentials(X[0])
    scores = fitted(torch.from_numpy(X[0].astype(np.float32))).detach().numpy()
    np.testing.assert_allclose(theta.unary, scores.reshape(-1, 2), atol=1e-6)


def test_bytes_do_not_depend_on_threads():
    X, Y = images()
    fits = [bf.GridCRF(unary=Pixels(), learner="sgd(epochs=2, batch_size=3)", n_jobs=jobs).fit(X, Y) for jobs in (1, 3)]
    np.testing.assert_array_equal(fits[0].weights_, fits[1].weights_)


def test_a_stopped_fit_goes_on_to_the_same_bytes(tmp_path):
    X, Y = images(4)
    whole = bf.GridCRF(unary=Pixels(), learner=SGD).fit(X, Y)
    path = tmp_path / "check"
    stop = [lambda iteration, w, row: iteration == 3]
    bf.GridCRF(unary=Pixels(), learner=SGD).fit(X, Y, checkpoint=path, callbacks=stop)
    resumed = bf.GridCRF(unary=Pixels(), learner=SGD).fit(X, Y, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.weights_, whole.weights_)


def test_chains_and_graphs_see_rows():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 3)) for _ in range(5)]
    Y = [(np.abs(x[:, 0]) > 0.7).astype(int) for x in X]
    chain = bf.ChainCRF(unary=rows(3, 2), learner="lbfgs(max_iter=60)", l2=1e-4).fit(X, Y)
    assert chain.score(X, Y) > 0.9  # |x| is not linear
    graph = bf.Graph.chain(6)
    samples = [bf.Sample(graph, x, rng.normal(size=(5, 2))) for x in X]
    crf = bf.GraphCRF(unary=rows(3, 2), pairwise=rows(2, 4), learner=SGD, inference="exact").fit(samples, Y)
    assert crf.layout_.n_weights == 32 + 39
    assert crf.fitted_module("pairwise")(torch.zeros(1, 2)).shape == (1, 4)


def test_save_and_load_ask_for_the_module(tmp_path):
    X, Y = images(3)
    crf = bf.GridCRF(unary=Pixels(), learner="sgd(epochs=1)").fit(X, Y)
    path = tmp_path / "model.bf"
    crf.save(path)
    assert b"pickle" not in path.read_bytes()
    with pytest.raises(
        bf.InputError, match=r"network of the class tests\.estimators\.test_network\.Pixels; loading runs no code"
    ):
        bf.load(path)
    with pytest.raises(bf.InputError, match="received a torch"):
        bf.load(path, unary=rows(1, 2))
    with pytest.raises(bf.InputError, match="with parameters"):
        bf.load(path, unary=Pixels(features=2))
    other = Pixels(seed=5)
    other.scale.fill_(7.0)  # what the file says counts
    again = bf.load(path, unary=other)
    for a, b in zip(crf.predict_proba(X), again.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)
    again.save(tmp_path / "second.bf")
    assert (tmp_path / "second.bf").read_bytes() == path.read_bytes()


def test_habits_of_scikit_learn():
    crf = bf.GridCRF(unary=bf.Network(Pixels()), learner="sgd(epochs=1)")
    copied = clone(crf)
    assert isinstance(copied.unary, bf.Network) and copied.unary is not crf.unary
    assert "test_network.Pixels" in repr(crf.unary)
    X, Y = images(2)
    fitted = pickle.loads(pickle.dumps(crf.fit(X, Y)))
    np.testing.assert_array_equal(fitted.predict(X)[0], crf.predict(X)[0])
    assert crf.layout_.unary[0].energy._local.last is None  # no graph is kept after predicting


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Dropout(0.5)), "1 .Dropout. is not a function of the weights"),
        (torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.BatchNorm1d(2)), "use GroupNorm"),
        (torch.nn.Linear(1, 3), r"must turn features \(8, 9, 1\) into \(8, 9, 2\)"),
        (torch.nn.Linear(1, 2, dtype=torch.float64).requires_grad_(False), None),
    ],
)
def test_what_is_refused(module, message):
    X, Y = images(2)
    crf = bf.GridCRF(unary=module, learner="sgd(epochs=1)")
    if message is None:  # nothing to train in the network is fine: the edges learn
        crf.fit(X, Y)
        return
    with pytest.raises(bf.InputError, match=message):
        crf.fit(X, Y)


def test_more_that_is_refused():
    X, Y = images(2)
    with pytest.raises(bf.InputError, match="a network needs features"):
        bf.GridCRF(pairwise=rows(1, 4), learner="sgd(epochs=1)").fit(X, Y)
    with pytest.raises(bf.InputError, match=r"bf\.Network\(module\)"):
        bf.GridCRF(unary="network", learner="sgd(epochs=1)").fit(X, Y)
    with pytest.raises(bf.InputError, match="not a network"):
        bf.GridCRF(learner="sgd(epochs=1)").fit(X, Y).fitted_module()


def test_an_empty_layout_starts_empty():
    assert WeightLayout().start().shape == (0,)
