"""Do the defaults win? ``python -m backfield_benchmarks.defaults_study``, or ``make defaults-study``.

For each data set: logistic regression (C = 1) and LightGBM on the features of single variables, the default estimator, the
default on top of LightGBM, and the best of a grid of 12 settings, chosen on a quarter of the training examples. Bars: the
default is at most .2 points of accuracy below logistic regression, at most .5 below the best of the grid, and its ECE is
under .04 or under that of logistic regression. A miss is said with the standard error of its mean over the seeds: where test
labels are few, there are more seeds. Each row is saved when it is done, and a study that is started again goes on.
"""

import argparse
import itertools
import time
import warnings
from functools import cache, partial

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import backfield as bf
from backfield_benchmarks.cells import Cells, commit_of_sources
from backfield_benchmarks.study_tasks import SEEDS, TAGGING, TASKS, available

MODULE = "backfield_benchmarks.defaults_study"
MODELS = ("logistic regression", "LightGBM", "default", "default on LightGBM", "best of 12")
NUMBERS = ("accuracy", "log_loss", "ece", "seconds")


def rows_of(X, vectorizer=None):
    """Return the features of single variables, and what names need."""
    if isinstance(X[0], list):
        tokens = [token for sentence in X for token in sentence]
        vectorizer = vectorizer or DictVectorizer().fit(tokens)
        return vectorizer.transform(tokens).astype(np.float32), vectorizer
    parts = [x.node_features if isinstance(x, bf.Sample) else np.asarray(x).reshape(-1, np.shape(x)[-1]) for x in X]
    return np.concatenate(parts).astype(np.float32), None


def flat(y):
    return np.concatenate([np.asarray(each).reshape(-1) for each in y])


def known(y):
    return y != ("" if y.dtype.kind == "U" else -1)


def boosted(seed):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=60, num_leaves=15, random_state=seed, n_jobs=1, verbose=-1)


def alone(model, task):
    """Return the metrics of a classifier of single variables."""
    (X, y), (test, truth) = task.train, task.test
    rows, names = rows_of(X)
    labels = flat(y)
    model.fit(rows[known(labels)], labels[known(labels)])
    wanted = flat(truth)
    p = model.predict_proba(rows_of(test, names)[0])
    classes = np.union1d(model.classes_, wanted[known(wanted)])
    full = np.full((len(p), len(classes)), 1e-9)
    full[:, np.searchsorted(classes, model.classes_)] = p
    return bf.metrics.evaluate([wanted], [classes[full.argmax(axis=1)]], classes, [full])


def field(task, params, train=None, test=None):
    """Return the metrics of an estimator, and the estimator."""
    (X, y), (inputs, truth) = train or task.train, test or task.test
    model = task.estimator(**task.params | params).fit(X, y)
    p = model.predict_proba(inputs)
    unseen = [np.where(np.isin(t, model.classes_) | ~known(np.asarray(t)), t, model.classes_[0]) for t in truth]
    found = [model.classes_[each.argmax(axis=-1)] for each in p]
    metrics = bf.metrics.evaluate(unseen, found, model.classes_, p)
    return metrics, model


def grid(task):
    """Return 12 settings."""
    labelled = int(known(flat(task.train[1])).sum())
    ridges = [scale / (2 * labelled) for scale in (0.1, 1, 10)]
    if task.estimator is bf.ChainCRF:
        losses = ({"loss": "surrogate_likelihood"}, {"loss": "univariate_logistic"})
        return [{"l2": r} | loss for r, loss in itertools.product(["auto", *ridges, 0.01 * ridges[0], 1e-3], losses)]
    sweeps = [{"inference": f"tree_reweighted(n_iter={n})"} for n in (5, 20)]
    losses = ({"loss": "univariate_logistic"}, {"loss": "clique_logistic"})
    return [{"l2": r} | s | loss for r, s, loss in itertools.product(["auto", ridges[1], ridges[2]], sweeps, losses)]


def best_of_grid(task, seed):
    X, y = task.train
    order = np.random.default_rng(seed).permutation(len(X))
    cut = max(1, len(X) // 4)
    held, rest = (([X[k] for k in part], [y[k] for k in part]) for part in (order[:cut], order[cut:]))
    settings = grid(task)
    losses = [field(task, params, rest, held)[0].log_loss for params in settings]
    chosen = settings[int(np.argmin(losses))]
    return (*field(task, chosen), chosen)


def measure(name, model, load, seed, commit):
    """Return a row of the table."""
    task = load()
    start = time.process_time()
    said = ""
    if model == "logistic regression":
        scaler = MaxAbsScaler() if isinstance(task.train[0][0], list) else StandardScaler()
        metrics = alone(make_pipeline(scaler, LogisticRegression(C=1.0, max_iter=500)), task)
    elif model == "LightGBM":
        metrics = alone(boosted(seed), task)
    elif model == "best of 12":
        metrics, _, chosen = best_of_grid(task, seed)
        said = str(chosen)
    else:
        params = {"unary": bf.Classifier(boosted(seed))} if "LightGBM" in model else {}
        metrics, fitted = field(task, params)
        said = fitted.message_
    return {
        "data": name, "model": model, "seed": seed, "accuracy": metrics.accuracy, "log_loss": metrics.log_loss,
        "ece": metrics.ece, "seconds": time.process_time() - start, "message": said, "commit": commit,
    }  # fmt: skip


def run(cells, names, models, seeds, small, saved):
    """Return the rows; what is not saved yet is computed or, with ``saved``, left out."""
    table = []
    commit = commit_of_sources()
    for name in names:
        for seed in range(seeds or SEEDS.get(name, 3)):
            load = cache(partial(TASKS[name], seed, small))
            for model in models:
                if "LightGBM" in model and name in TAGGING:
                    continue  # tens of thousands of sparse columns
                cell = f"{name}, {model}, seed {seed}"
                if cell in cells.rows or not saved:
                    table.append(cells.get(cell, partial(measure, name, model, load, seed, commit)))
    return table


def means(table):
    """Return (data, model) -> mean over seeds."""
    keys = dict.fromkeys((row["data"], row["model"]) for row in table)
    return {
        key: {n: float(np.mean([row[n] for row in table if (row["data"], row["model"]) == key])) for n in NUMBERS}
        for key in keys
    }


def distance(table, other):
    """Return how much less accurate the default is than another model, and the standard error of that over the seeds."""
    of = {model: {row["seed"]: row["accuracy"] for row in table if row["model"] == model} for model in ("default", other)}
    below = [accuracy - of["default"][seed] for seed, accuracy in of[other].items()]
    return np.mean(below), np.std(below, ddof=1) / len(below) ** 0.5 if len(below) > 1 else np.nan


def verdicts(table):
    """Return data -> what misses its bar, in words, over the seeds that have all that is compared."""
    out = {}
    compared = ("default", "logistic regression", "best of 12")
    for name in dict.fromkeys(row["data"] for row in table):
        seeds = [{row["seed"] for row in table if (row["data"], row["model"]) == (name, model)} for model in compared]
        if not set.intersection(*seeds):
            out[name] = "not run as a whole"
            continue
        whole = [row for row in table if row["data"] == name and row["seed"] in set.intersection(*seeds)]
        found = means(whole)
        misses = []
        for other, bar in (("logistic regression", 0.002), ("best of 12", 0.005)):
            below, error = distance(whole, other)
            if below > bar:
                misses.append(f"{100 * below:.2f} points below {other} (standard error {100 * error:.2f})")
        mine, plain = (found[name, model]["ece"] for model in compared[:2])
        if mine > max(0.04, plain):
            misses.append(f"ECE {mine:.3f}")
        out[name] = f"{'; '.join(misses) or 'holds'} ({len(set.intersection(*seeds))} seeds)"
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(TASKS), help="some of the data sets")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, help="how many (default: 3, and more where test labels are few)")
    parser.add_argument("--saved", action="store_true", help="compute nothing: print what is saved")
    parser.add_argument("--small", action="store_true", help="a few examples of each")
    parser.add_argument("--out", help="a name in docs/results/studies, or a JSON file (default: defaults or defaults-small)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    small = " --small" * options.small
    cells = Cells(options.out or "defaults" + "-small" * options.small, f"python -m {MODULE}{small}")
    names = [name for name in options.only or TASKS if available(name)]
    rows = run(cells, names, options.models, options.seeds, options.small, options.saved)
    found = means(rows)
    print("| data | model | accuracy | log loss | ECE | seconds |\n|---|---|---|---|---|---|")
    for (data, model), row in found.items():
        print(f"| {data} | {model} | " + " | ".join(f"{row[key]:.4g}" for key in NUMBERS) + " |")
    for data, verdict in verdicts(rows).items():
        print(f"{data}: {verdict}")


if __name__ == "__main__":
    main()
