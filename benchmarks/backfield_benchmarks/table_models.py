"""``MarkovNetwork`` on tables sampled from Bayesian networks, beside pgmpy and LightGBM.

    pip install pgmpy lightgbm
    python -m backfield_benchmarks.table_models [--networks child insurance alarm] [--rows 500 2000 20000] [--seeds 2]

Rows are drawn from the network, and a tenth of the values is taken away at random. All methods know the states of each
column. They are scored on 500 whole rows that they have not seen: ``log-likelihood`` per row (that of the network itself is
beside it), and ``error``, the share of values that are not the most probable ones given all other columns of the row, and
``log loss`` of these predictions per value.

*independent*: no edges. *chow_liu*: the tree, likelihood by EM. *lasso*: edges by the lasso, pseudolikelihood. *lasso,
exact*: the same edges, likelihood by EM (added when the others had been seen; empty where the junction tree is too large).
*lasso, loopy BP*: the same edges, surrogate likelihood and predictions through loopy belief propagation. *pgmpy*: hill
climbing by BIC, then BDeu, both from the counts of the rows that have the values in question. *LightGBM*: one classifier
for each column from all others, which has no joint distribution. Every fit of ours has 60 seconds at the most. Nothing was
tuned.
"""

import argparse
import logging
import time
import warnings
from functools import partial

import numpy as np

from backfield.datasets import data_dir
from backfield.errors import InputError
from backfield.models import MarkovNetwork, Model
from backfield_benchmarks.cells import Cells

TEST, MISSING, SECONDS = 500, 0.1, 60.0
LOOPY = "loopy_bp(n_iter=30, damping=0.2)"
OURS = {
    "independent": {"edges": [], "objective": "likelihood"},
    "chow_liu": {"edges": "chow_liu", "objective": "likelihood"},
    "lasso": {"edges": "lasso", "objective": "pseudolikelihood"},
    "lasso, exact": {"edges": "lasso", "objective": "likelihood"},
    "lasso, loopy BP": {"edges": "lasso", "objective": "likelihood", "inference": LOOPY},
}


def table(model, n, seed):
    """Return n rows as a DataFrame of categories."""
    import pandas

    rows = model.sample(n, seed=seed)
    return pandas.DataFrame({name: pandas.Categorical(rows[name], categories=model.states[name]) for name in model.names})


def split(model, n, seed):
    train, test = table(model, n, 2 * seed), table(model, TEST, 2 * seed + 1)
    return train.mask(np.random.default_rng(seed).random(train.shape) < MISSING), test


def judged(test, predictions):
    """Return error and log loss of {column: (N, states) probabilities}."""
    truth = {name: test[name].cat.codes.to_numpy() for name in test}
    wrong = np.mean([(p.argmax(axis=1) != truth[name]).mean() for name, p in predictions.items()])
    loss = np.mean([-np.log(np.maximum(p[np.arange(len(p)), truth[name]], 1e-6)).mean() for name, p in predictions.items()])
    return {"error": float(wrong), "log loss": float(loss)}


def ours(train, test, settings):
    network = MarkovNetwork(max_seconds=SECONDS, **settings).fit(train)
    predictions = {name: network.predict_proba(test, name)[name] for name in test}
    return {"log-likelihood": likelihood(network.model_, test), **judged(test, predictions), "edges": len(network.edges_)}


def likelihood(model, test):
    """Return the mean log-probability of whole rows, exact."""
    labels = np.stack([test[name].cat.codes.to_numpy(dtype=np.int64) for name in model.names], axis=1)
    return float(np.mean([model.theta.score(row) for row in labels]) - model.log_partition)


def pgmpy(train, test, states):
    from pgmpy.estimators import BayesianEstimator, HillClimbSearch
    from pgmpy.models import DiscreteBayesianNetwork

    logging.getLogger("pgmpy").setLevel(logging.ERROR)
    plain = train.astype(object)
    found = HillClimbSearch(plain, state_names=states).estimate(scoring_method="bic-d", show_progress=False)
    network = DiscreteBayesianNetwork(found.edges())
    network.add_nodes_from(train.columns)
    estimator = BayesianEstimator(network, plain, state_names=states)
    network.add_cpds(*estimator.get_parameters(prior_type="BDeu", n_jobs=1))
    model = Model.from_pgmpy(network)
    test = test[list(model.names)]
    labels = np.stack([[model.states[name].index(value) for value in test[name]] for name in model.names], axis=1)
    value = float(np.mean([model.theta.score(row) for row in labels]))
    predictions = {name: _given_others(model, labels, i)[:, [model.states[name].index(s) for s in states[name]]]
                   for i, name in enumerate(model.names)}  # fmt: skip
    return {"log-likelihood": value, **judged(test, predictions), "edges": len(network.edges())}


def _given_others(model, labels, i):
    """Return P(variable i | all others) of each row, from the scores of all its states."""
    scores = np.empty((len(labels), len(model.states[model.names[i]])))
    for x in range(scores.shape[1]):
        changed = labels.copy()
        changed[:, i] = x
        scores[:, x] = [model.theta.score(row) for row in changed]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def lightgbm(train, test, states):
    from lightgbm import LGBMClassifier

    predictions = {}
    for name in train:
        seen = train[name].notna()
        codes = train.loc[seen, name].cat.codes.to_numpy()
        others, p = [other for other in train if other != name], np.zeros((len(test), len(states[name])))
        if len(set(codes)) < 2:
            p[:, codes[0]] = 1
        else:
            booster = LGBMClassifier(n_estimators=100, verbose=-1, n_jobs=1).fit(train.loc[seen, others], codes)
            p[:, booster.classes_] = booster.predict_proba(test[others])
        predictions[name] = p
    return {"log-likelihood": None, **judged(test, predictions)}


def cell(model, n, seed, method):
    train, test = split(model, n, seed)
    states = {name: list(part) for name, part in model.states.items()}
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in OURS:
            try:
                row = ours(train, test, OURS[method])
            except InputError as error:
                return {"refused": str(error)}
        else:
            row = {"pgmpy": pgmpy, "LightGBM": lightgbm}[method](train, test, states)
    return {**row, "truth": likelihood(model, test), "seconds": time.process_time() - start}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="*", default=["child", "insurance", "alarm"])
    parser.add_argument("--rows", nargs="*", type=int, default=[500, 2000, 20000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", default="table-models")
    options = parser.parse_args()
    cells, methods = Cells(options.out, "python -m backfield_benchmarks.table_models"), [*OURS, "pgmpy", "LightGBM"]
    models = {name: Model.read(data_dir() / "bnlearn" / f"{name}.bif.gz") for name in options.networks}
    for n in options.rows:
        for name, model in models.items():
            for seed in range(options.seeds):
                for method in methods:
                    cells.get(f"{name} {n} {seed} {method}", partial(cell, model, n, seed, method))
            cells.summary = [row for row in cells.summary if (row["network"], row["rows"]) != (name, n)]
            for method in methods:
                rows = [cells.rows[f"{name} {n} {seed} {method}"] for seed in range(options.seeds)]
                row = {"network": name, "rows": n, "method": method, "seeds": options.seeds} | means(rows)
                cells.summary.append(row)
                print(row, flush=True)
            cells.save()


def means(rows):
    """Return the means over seeds of what all of them have."""
    keys = ("log-likelihood", "truth", "error", "log loss", "seconds")
    return {key: float(np.mean([row[key] for row in rows])) for key in keys if all(row.get(key) is not None for row in rows)}


if __name__ == "__main__":
    main()
