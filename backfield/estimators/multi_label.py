"""MultiLabelCRF: several yes-or-no labels of each row, learned together.

    p(y | x) ~ exp( sum_k y_k (w_k·x + b_k) + sum_(k, l) y_k y_l c_kl ),    y in {0, 1}^K

Minimises the mean negative log-likelihood per known label + l2 (|w|^2 + |c|^2), w in units of standardised features; labels
that are missing are summed over. Sums over y are exact (:mod:`backfield.estimators.label_tree`).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import issparse

from backfield.constraints import Table, check, choice, instance, numbers, optional, real
from backfield.errors import InputError
from backfield.estimators.label_tree import LabelTree, strongest_pairs
from backfield.learners import Learner
from backfield.registry import Component, get
from backfield.scikit_learn import BaseEstimator, ClassifierMixin, check_is_fitted, validate_data
from backfield.training.protocols import Evaluation, Gram
from backfield.training.weights import MAX_RIDGE

#: More labels than this are coupled by their most informative pairs only.
ALL_PAIRS = 10
#: Largest clique of these pairs.
_WIDTH = 5
#: What the ridge on intercepts is multiplied by: small, so the means of features do not matter.
_INTERCEPT = 1e-4


#: What the parameters may be.
PARAMETERS: Table = {
    "decoder": (choice("max_marginal", "map"),),
    "learner": (instance("a spec such as 'lbfgs(max_iter=200)', or a part", str, Component),),
    "pairs": (choice("auto", "all", "tree", "none"), instance("a list of pairs", list, tuple, np.ndarray)),
    "l2": (choice("auto"), real(0, MAX_RIDGE)),
}


class _WrongType(InputError, TypeError):
    """What scikit-learn calls a type error."""


class MultiLabelCRF(ClassifierMixin, BaseEstimator):
    """A conditional random field over the K labels of each row; takes the place of ``ClassifierChain``.

    Parameters
    ----------
    pairs : "auto", "all", "tree", "none" or list of (k, l)
        Which labels are coupled. "auto": all pairs of up to 10 labels; of more, a tree of the most informative pairs and
        further ones while exact sums stay cheap.
    l2 : "auto" or float
        Ridge on weights and couplings; "auto" is 1 / (2 number of known labels), scikit-learn's C = 1.
    decoder : {"max_marginal", "map"}
        Predict each label by its own probability (fewest wrong labels), or the likeliest set (most exact matches).
    learner : str
        Spec of what moves the weights.

    Attributes
    ----------
    coef_, intercept_ : (K, F), (K,)
    couplings_ : (K, K), symmetric
    pairs_ : (number of pairs, 2)
    classes_ : list of K arrays [0, 1]
    trace_, converged_, message_ : of the learner
    """

    def __init__(
        self,
        pairs: Any = "auto",
        l2: Any = "auto",
        decoder: str = "max_marginal",
        learner: Any = "lbfgs(max_iter=200)",
    ) -> None:
        self.pairs = pairs
        self.l2 = l2
        self.decoder = decoder
        self.learner = learner

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (n, F), dense or sparse, and y (n, K) of 0 and 1; -1 or NaN = not known."""
        check(self.get_params(deep=False), PARAMETERS)
        X, labels = self._validated(X), checked_labels(y)
        if len(labels) != X.shape[0]:
            raise InputError(f"X has {X.shape[0]} rows and y {len(labels)}; both need one per example.")
        weight = _checked_weight(sample_weight, len(labels))
        units = _Units.of(X)
        tree = LabelTree(labels.shape[1], _chosen_pairs(self.pairs, labels))
        problem = _Likelihood(units.apply(X), labels, tree, weight, _ridge(self.l2, int((labels >= 0).sum())))
        learner: Learner = get("learners", self.learner)
        found = learner.fit(problem, np.zeros(problem.n_weights))
        self._keep(tree, *problem.split(found.w), units)
        self.trace_, self.converged_, self.message_ = found.trace, found.converged, found.message
        return self

    def _keep(self, tree: LabelTree, weights: np.ndarray, couplings: np.ndarray, units: _Units) -> None:
        self.tree_, self.pairs_, self._couplings = tree, tree.pairs, couplings
        self.coef_ = (weights[:-1] / units.scale[:, None]).T
        self.intercept_ = weights[-1] - self.coef_ @ units.mean
        self.couplings_ = np.zeros((tree.n_labels, tree.n_labels))
        self.couplings_[tree.pairs[:, 0], tree.pairs[:, 1]] = self.couplings_[tree.pairs[:, 1], tree.pairs[:, 0]] = couplings
        self.classes_ = [np.array([0, 1])] * tree.n_labels

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (n, K) of 0 and 1."""
        check(self.get_params(deep=False), PARAMETERS)
        scores = self._scores(X)
        if self.decoder == "map":
            return self.tree_.best(scores, self._couplings)
        return (self.tree_.sums(scores, self._couplings).labels > 0.5).astype(np.int64)

    def predict_proba(self, X: Any, given: Any = None) -> np.ndarray:
        """Return the probability of each label, (n, K); ``given`` (n, K) are labels that are known, -1 = not."""
        scores = self._scores(X)
        known = None if given is None else checked_labels(given)
        if known is not None and known.shape != scores.shape:
            raise InputError(f"given must have shape {scores.shape}, received {known.shape}.")
        return np.clip(self.tree_.sums(scores, self._couplings, known).labels, 0.0, 1.0)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose known labels are all right."""
        found, labels = self.predict(X), checked_labels(y)
        if labels.shape != found.shape:
            raise InputError(f"y must have shape {found.shape}, received {labels.shape}.")
        weight = _checked_weight(sample_weight, len(labels))
        right = ((found == labels) | (labels < 0)).all(axis=1)
        return float(weight @ right / weight.sum())

    def log_likelihood(self, X: Any, Y: Any) -> np.ndarray:
        """Return log p(known labels | x) of each row."""
        scores, labels = self._scores(X), checked_labels(Y)
        if labels.shape != scores.shape:
            raise InputError(f"Y must have shape {scores.shape}, received {labels.shape}.")
        free = self.tree_.sums(scores, self._couplings).log_z
        return self.tree_.sums(scores, self._couplings, labels).log_z - free

    def save(self, path: Any) -> None:
        """Write the model to a file that :func:`backfield.load` reads back without running code."""
        from backfield.estimators.model_file import save_multi_label

        save_multi_label(self, path)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what was learned, by name."""
        return {"coef": self.coef_, "intercept": self.intercept_, "couplings": self._couplings, "pairs": self.pairs_}

    def with_arrays(self, arrays: dict[str, np.ndarray]) -> Self:
        """Become the model of which :meth:`arrays` were taken; what does not go together is refused."""
        check(self.get_params(deep=False), PARAMETERS)
        coef, intercept, couplings, pairs = (arrays[key] for key in ("coef", "intercept", "couplings", "pairs"))
        sizes = (2, coef.shape[:1], pairs.shape[:1], (*pairs.shape[:1], 2))
        if (
            (coef.ndim, intercept.shape, couplings.shape, pairs.shape) != sizes
            or pairs.dtype.kind != "i"
            or min(coef.shape) < 1
        ):
            raise InputError("the sizes of coefficients, couplings and pairs do not match.")
        self.n_features_in_ = coef.shape[1]
        tree = LabelTree(len(coef), checked_pairs(pairs, len(coef)))
        units = _Units(np.zeros(coef.shape[1]), np.ones(coef.shape[1]))
        self._keep(tree, np.concatenate([coef.T, intercept[None]]), couplings, units)
        return self

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        return np.asarray(self._validated(X, reset=False) @ self.coef_.T) + self.intercept_

    def _validated(self, X: Any, reset: bool = True) -> Any:
        """Return the features as scikit-learn checks them; what it refuses is refused in one line."""
        try:
            return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)
        except ValueError as error:
            raise InputError(str(error)) from error
        except TypeError as error:
            raise _WrongType(str(error)) from error

    def __sklearn_tags__(self) -> Any:
        """Declare several labels per row, and sparse features."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output, tags.target_tags.single_output = True, False
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, False
        tags.input_tags.sparse = True
        return tags


def checked_labels(Y: Any) -> np.ndarray:
    """Return labels (n, K) as 0, 1 and -1 = not known."""
    try:
        values = np.asarray(Y.toarray() if issparse(Y) else Y)
    except (TypeError, ValueError) as error:
        raise InputError(f"Y must be numbers of shape (n, K): {error}.") from error
    if values.ndim != 2 or values.shape[1] == 0 or values.dtype.kind not in "biuf":
        raise InputError(f"Y must be numbers of shape (n, K), received {values.dtype} of shape {values.shape}.")
    labels = np.where(np.isnan(values), -1, values) if values.dtype.kind == "f" else values
    strange = np.argwhere(~np.isin(labels, (-1, 0, 1)))
    if len(strange):
        row, column = (int(k) for k in strange[0])
        raise InputError(f"Y holds {values[row, column]} in row {row}, column {column}; 0, 1, and -1 or NaN are labels.")
    return labels.astype(np.int64)


def _checked_weight(sample_weight: Any, count: int) -> np.ndarray:
    check({"sample_weight": sample_weight}, {"sample_weight": (numbers(f"{count} numbers >= 0"), optional)})
    weight = np.ones(count) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise InputError(f"sample_weight must be {count} finite numbers >= 0, not all zero.")
    return weight


def _ridge(l2: Any, n_known: int) -> float:
    if n_known == 0:
        raise InputError("there is nothing to learn from: no label is known.")
    if isinstance(l2, str) and l2 == "auto":
        return 0.5 / n_known
    return float(l2)


def checked_pairs(pairs: Any, count: int) -> np.ndarray:
    """Return pairs of labels (number of pairs, 2), the smaller label first."""
    try:
        ends = np.sort(np.asarray(pairs, dtype=np.int64).reshape(-1, 2), axis=1)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"pairs must be different pairs of labels 0 .. {count - 1}, each once.") from None
    bad = ends.size and (ends.min() < 0 or ends.max() >= count or (ends[:, 0] == ends[:, 1]).any())
    if bad or len(np.unique(ends, axis=0)) != len(ends):
        raise InputError(f"pairs must be different pairs of labels 0 .. {count - 1}, each once.")
    return ends


def _chosen_pairs(pairs: Any, labels: np.ndarray) -> np.ndarray:
    count = labels.shape[1]
    if not isinstance(pairs, str):
        return checked_pairs(pairs, count)
    if pairs == "none":
        return np.empty((0, 2), dtype=np.int64)
    if pairs == "all" or (pairs == "auto" and count <= ALL_PAIRS):
        return np.stack(np.triu_indices(count, 1), axis=1)
    return strongest_pairs(_information(labels), 2 if pairs == "tree" else _WIDTH)


def _information(labels: np.ndarray) -> np.ndarray:
    """Return the mutual information of each pair of labels, over the rows where both are known."""
    on, off = (labels == 1).astype(np.float64), (labels == 0).astype(np.float64)
    joint = np.array([[a.T @ b for b in (off, on)] for a in (off, on)]) + 0.5  # (2, 2, K, K)
    joint /= joint.sum(axis=(0, 1))
    return (joint * np.log(joint / (joint.sum(axis=0)[None] * joint.sum(axis=1)[:, None]))).sum(axis=(0, 1))


class _Units(NamedTuple):
    """Means and scales of features: of dense ones their standard deviations, of sparse ones their largest values."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, X: Any) -> _Units:
        if issparse(X):
            mean, scale = np.zeros(X.shape[1]), np.asarray(abs(X).max(axis=0).todense()).reshape(-1)
        else:
            mean, scale = X.mean(axis=0), X.std(axis=0)
        return cls(mean, np.where(scale > 0, scale, 1.0))

    def apply(self, X: Any) -> Any:
        return X.multiply(1 / self.scale).tocsr() if issparse(X) else (X - self.mean) / self.scale


class _Info(NamedTuple):
    """What is minimised."""

    name: str = "likelihood of label sets"
    integrable: bool = True
    smooth: bool = True


class _Likelihood:
    """The problem that a learner minimises; weights are W (F + 1, K), the last row intercepts, then couplings."""

    def __init__(self, X: Any, labels: np.ndarray, tree: LabelTree, weight: np.ndarray, l2: float) -> None:
        self.X, self.labels, self.tree, self.weight, self.l2 = X, labels, tree, weight, l2
        self.size = int((labels >= 0).sum())
        self.n_examples = len(labels)
        self.rows = X.shape[1] + 1
        self.n_weights = self.rows * tree.n_labels + len(tree.pairs)
        self.objective_info = _Info()
        self.ridge = np.full(self.n_weights, l2)
        self.ridge[(self.rows - 1) * tree.n_labels : self.rows * tree.n_labels] *= _INTERCEPT
        self.partial: np.ndarray = np.asarray((labels < 0).any(axis=1))

    def split(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W and the couplings."""
        cut = self.rows * self.tree.n_labels
        return w[:cut].reshape(self.rows, -1), w[cut:]

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return the regularised mean negative log-likelihood per known label, of all rows or a batch."""
        chosen = slice(None) if batch is None else batch
        X, labels, weight = self.X[chosen], self.labels[chosen], self.weight[chosen]
        count = max(1, int((labels >= 0).sum()))
        matrix, couplings = self.split(w)
        u = np.asarray(X @ matrix[:-1]) + matrix[-1]
        free = self.tree.sums(u, couplings)
        value, d_u, d_pairs = self._known(u, couplings, labels, self.partial[chosen])
        known = np.asarray(labels >= 0)
        right = np.asarray((free.labels > 0.5) == (labels == 1))[known]
        wrong = 1 - right.mean() if len(right) else math.nan
        d_u = weight[:, None] * (free.labels - d_u)
        gradient = np.concatenate([np.asarray(X.T @ d_u).reshape(-1), d_u.sum(axis=0), weight @ (free.pairs - d_pairs)])
        total = float(weight @ (free.log_z - value)) / count + float(self.ridge @ w**2)
        return Evaluation(total, gradient / count + 2 * self.ridge * w, float(wrong), 0)

    def _known(self, u: np.ndarray, couplings: np.ndarray, labels: np.ndarray, partial: np.ndarray) -> Any:
        """Return log sums and moments over the labels that agree with what is known."""
        full = labels * (labels > 0)
        a, b = self.tree.pairs.T
        pairs = (full[:, a] * full[:, b]).astype(np.float64)
        value, moments = (u * full).sum(axis=1) + pairs @ couplings, full.astype(np.float64)
        if partial.any():
            found = self.tree.sums(u[partial], couplings, labels[partial])
            value[partial], moments[partial], pairs[partial] = found
        return value, moments, pairs

    def grams(self) -> list[Gram]:
        """Return the second moments of features with a constant, of all labels, and of a pair as a constant."""
        if issparse(self.X) or self.rows > 513:
            return [Gram(0, self.n_weights, 2, None, self.l2)]
        X = np.concatenate([self.X, np.ones((len(self.X), 1))], axis=1)
        cut, known = self.rows * self.tree.n_labels, self.size / self.tree.n_labels
        blocks = [Gram(0, cut, self.tree.n_labels, X.T @ X, self.l2)]
        if len(self.tree.pairs):
            blocks.append(Gram(cut, self.n_weights, len(self.tree.pairs), np.array([[known]]), self.l2))
        return blocks

    def fingerprint(self) -> dict[str, str]:
        """Return a text for what must be the same when a fit is resumed."""
        X = self.X.toarray() if issparse(self.X) else self.X
        parts = [np.ascontiguousarray(each).tobytes() for each in (X, self.labels, self.weight, self.tree.pairs)]
        return {"data": hashlib.blake2b(b"|".join(parts), digest_size=16).hexdigest(), "l2": repr(self.l2)}
