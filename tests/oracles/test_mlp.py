import numpy as np
import pytest

from backfield import InputError
from backfield.oracles import Mlp, OracleTask, checked_fit, objective
from backfield.oracles.mlp import MlpFunction
from tests.oracles.rows import rows

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("spec", [Mlp(), Mlp(optimizer="adam"), Mlp(step=0.05, n_epochs=20)])
def test_the_loss_falls_from_fit_to_fit(spec):
    x, y, bias = rows(n=5000, margin=10)
    f, losses = None, [objective(np.zeros(bias.shape), y, bias)]
    for _ in range(4):
        f = spec.fit(OracleTask(x, y, bias, start=f))
        losses.append(objective(f.scores(x), y, bias))
    assert np.all(np.diff(losses) < 0)


def test_it_learns_what_no_line_can():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(5000, 1))
    y = (np.abs(x[:, 0]) > 0.5).astype(int)
    fit = checked_fit(Mlp(optimizer="adam", n_epochs=60), OracleTask(x, y, np.zeros((5000, 2))))
    assert np.mean(fit.scores.argmax(axis=1) == y) > 0.97


def test_first_step_is_a_tenth_of_the_gradient():
    x, y, bias = rows(n=400)
    f = Mlp(n_epochs=1, batch=400, step=0.25).fit(OracleTask(x, y, bias))
    # W = 0 at the start, so that the first gradient of the output's bias is the mean of softmax(b) - target.
    e = np.exp(bias)
    gradient = (e / e.sum(axis=1, keepdims=True) - np.eye(3)[y]).mean(axis=0)
    np.testing.assert_allclose(f.layers.bias, -0.25 * 0.1 * gradient, rtol=1e-4, atol=1e-7)


def test_scores_are_those_of_the_network():
    x, y, bias = rows(n=777)
    f = Mlp(hidden=11).fit(OracleTask(100 + 1000 * x, y, bias))
    mean, scale, u, c, w, a = (np.float64(layer) for layer in f.layers)
    z = (100 + 1000 * x - mean) / scale
    expected = 1 / (1 + np.exp(-(z @ u.T + c))) @ w.T + a
    np.testing.assert_allclose(f.scores(100 + 1000 * x), expected, atol=1e-4)


def test_seeds_matter_and_the_number_of_threads_is_put_back():
    x, y, bias = rows(n=500)
    before = torch.get_num_threads()
    a, b = (Mlp().fit(OracleTask(x, y, bias, seed=seed, n_jobs=1)).scores(x) for seed in (0, 1))
    assert not np.allclose(a, b)
    assert torch.get_num_threads() == before


def test_a_diverging_step_is_caught():
    x, y, bias = rows(n=2000)
    with pytest.raises(InputError, match=r"oracle 'mlp'.*(nan|inf)"), np.errstate(all="ignore"):
        checked_fit(Mlp(step=1e38, n_epochs=3, batch=100), OracleTask(x, y, bias))


def test_layers_that_do_not_go_together_are_refused():
    x, y, bias = rows(n=100)
    f = Mlp(hidden=5).fit(OracleTask(x, y, bias))
    with pytest.raises(InputError, match="do not match"):
        MlpFunction.from_arrays({**f.arrays(), "bias": np.zeros(2)}, f.meta())
