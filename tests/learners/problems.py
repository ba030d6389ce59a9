"""Small problems with known answers for learners."""

import time
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from backfield.training.protocols import Evaluation


class Info(NamedTuple):
    name: str = "test"
    integrable: bool = True
    smooth: bool = True


class Unpenalised:
    """What every problem has."""

    l2 = 0.0

    def fingerprint(self):
        return {}


class Function(Unpenalised):
    """A function of w alone: ``f(w) -> value, gradient``."""

    n_examples = 1

    def __init__(self, f, n_weights, integrable=True):
        self.f, self.n_weights, self.objective_info = f, n_weights, Info("test", integrable)
        self.calls = 0

    def value_and_gradient(self, w, batch=None, seed=0):
        self.calls += 1
        value, gradient = self.f(w)
        return Evaluation(value, gradient, float("nan"), 2)


class Logistic(Unpenalised):
    """Logistic regression, each row an example.

    ``noise`` perturbs gradients by the seed, ``pause`` makes it slow, and after ``stop`` calls it waits to be killed.
    """

    def __init__(self, n=60, d=8, l2=1e-2, seed=0, noise=0.0, pause=0.0, stop=None, integrable=True):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n, d)) * np.logspace(0, -1, d)
        self.y = np.sign(self.x @ np.ones(d) + rng.logistic(size=n))
        self.l2, self.noise, self.pause, self.stop = l2, noise, pause, stop
        self.n_examples, self.n_weights = n, d
        self.objective_info = Info("logistic", integrable)
        self.calls, self.batches, self.seeds = 0, [], []

    def value_and_gradient(self, w, batch=None, seed=0):
        time.sleep(self.pause if self.calls != self.stop else 1000)
        self.calls += 1
        self.batches.append(batch)
        self.seeds.append(seed)
        x, y = (self.x, self.y) if batch is None else (self.x[batch], self.y[batch])
        margin = y * (x @ w)
        gradient = -(x.T @ (y * expit(-margin))) / len(y) + 2 * self.l2 * w
        if self.noise:
            gradient = gradient + self.noise * np.random.default_rng(seed).normal(size=len(w))
        value = np.logaddexp(0, -margin).mean() + self.l2 * w @ w
        return Evaluation(float(value), gradient, float((margin < 0).mean()), len(y))

    def optimum(self):
        options = {"maxiter": 1000, "ftol": 0, "gtol": 1e-10}
        start = np.zeros(self.n_weights)
        found = minimize(lambda w: self.value_and_gradient(w)[:2], start, jac=True, method="L-BFGS-B", options=options)
        self.calls = 0
        return found.x


class Softmax(Unpenalised):
    """Multi-class logistic regression with features of very different sizes."""

    n_examples = 1
    objective_info = Info("softmax")

    def __init__(self, n=300, d=20, k=4, l2=1e-4, seed=3):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(n, d)) * np.logspace(0, -2, d)
        self.y = (5 * self.x @ rng.normal(size=(d, k)) + rng.gumbel(size=(n, k))).argmax(1)
        self.k, self.l2, self.n_weights, self.calls = k, l2, d * k, 0

    def value_and_gradient(self, w, batch=None, seed=0):
        self.calls += 1
        n = len(self.y)
        scores = self.x @ w.reshape(-1, self.k)
        log_z = np.logaddexp.reduce(scores, axis=1)
        p = np.exp(scores - log_z[:, None])
        value = (log_z - scores[np.arange(n), self.y]).mean() + self.l2 * w @ w
        p[np.arange(n), self.y] -= 1
        return Evaluation(float(value), (self.x.T @ p / n).ravel() + 2 * self.l2 * w, float("nan"), 1)


def quadratic(d=30, condition=3.0):
    """1/2 w·Hw - sum w, with a given power of ten as condition number."""
    h = np.logspace(0, condition, d)
    return Function(lambda w: (0.5 * w @ (h * w) - w.sum(), h * w - 1), d), 1 / h


def same_trace(a, b):
    """Whether two traces agree in all but the time."""
    strip = [[{key: value for key, value in row.items() if key != "seconds"} for row in trace] for trace in (a, b)]
    return repr(strip[0]) == repr(strip[1])
