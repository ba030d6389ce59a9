"""ChainCRF beside python-crfsuite on CoNLL-2000, w7-like dense chains and OCR letters, in one run.

    pip install python-crfsuite && python -m backfield_benchmarks.crfsuite [conll] [w7] [letters]

python-crfsuite is needed by this benchmark only. Both fit the likelihood with L-BFGS and c2 = 1.
"""

import json
import resource
import sys
import tempfile
import time

import numpy as np

import backfield as bf
from backfield.datasets import conll, letters


def chunk_f1(truth, guess):
    """F1 of chunks in BIO tags (conlleval)."""
    wanted, found = (set(_chunks(tags)) for tags in (truth, guess))
    both = len(wanted & found)
    return 2 * both / (len(wanted) + len(found))


def _chunks(sentences):
    for s, tags in enumerate(sentences):
        start, kind = None, None
        for t, tag in enumerate([*tags, "O"]):
            prefix, _, name = tag.partition("-")
            if start is not None and (prefix != "I" or name != kind):
                yield s, start, t, kind
                start = None
            if prefix == "B" or (prefix == "I" and start is None):
                start, kind = t, name


def crfsuite(X, y, max_iterations, dense=False):
    """Train and return the tagger, the seconds and the last objective value."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    trainer.set_params({"c1": 0.0, "c2": 1.0, "max_iterations": max_iterations, "feature.possible_states": dense})
    for features, labels in zip(X, y, strict=True):
        trainer.append(features, [str(label) for label in labels])
    path = tempfile.mktemp(suffix=".crfsuite")
    start = time.perf_counter()
    trainer.train(path)
    seconds = time.perf_counter() - start
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    return tagger, seconds, trainer.logparser.last_iteration


def ours(X, y, n_positions, max_iter, unary, intercept=False):
    """Train with the same objective: l2 = c2 / positions."""
    learner = f"lbfgs(max_iter={max_iter}, tol=1e-9)"
    crf = bf.ChainCRF(unary=unary, fit_intercept=intercept, l2=1.0 / n_positions, learner=learner, decoder="map")
    start = time.perf_counter()
    crf.fit(X, y)
    return crf, time.perf_counter() - start


def run_conll(max_iter=100):
    data = conll.load()
    tags, test_tags = data.train_labels, data.test_labels
    X = [conll.window_features(sentence) for sentence in data.train]
    Xt = [conll.window_features(sentence) for sentence in data.test]
    n = sum(len(sentence) for sentence in X)
    crf, seconds = ours(X, tags, n, max_iter, "observed_linear")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    guess = [list(each) for each in crf.predict(Xt)]
    mine = {
        "F1": 100 * chunk_f1(test_tags, guess),
        "seconds": seconds,
        "objective": crf.trace_[-1]["objective"] * n,
        "weights": len(crf.weights_),
        "peak_MB_with_input_dicts": after,
    }
    tagger, their_seconds, last = crfsuite(X, tags, max_iter)
    theirs = {
        "F1": 100 * chunk_f1(test_tags, [tagger.tag(each) for each in Xt]),
        "seconds": their_seconds,
        "objective": last.get("loss"),
    }
    reach = [row["seconds"] for row in crf.trace_ if row["objective"] * n <= (last.get("loss") or 0)]
    mine["seconds_to_their_objective"] = reach[0] if reach else None
    return {"case": "conll", "ours": mine, "crfsuite": theirs}


def run_w7():
    """600 chains, 26 labels, 128 dense bits (the workload w7: same seed and recipe)."""
    r = np.random.default_rng(77)
    proto = r.random((26, 128)) < 0.3
    A = r.dirichlet(np.full(26, 0.3), 26)
    X, Y = [], []
    for _ in range(600):
        length = int(np.clip(r.poisson(8) + 1, 3, 16))
        y = [int(r.integers(26))]
        for _ in range(1, length):
            y.append(int(r.choice(26, p=A[y[-1]])))
        y = np.array(y)
        X.append((proto[y] ^ (r.random((length, 128)) < 0.12)).astype(np.float64))
        Y.append(y)
    n = sum(map(len, Y))
    ours(X, Y, n, 2, "linear")  # compile
    crf, seconds = ours(X, Y, n, 50, "linear")
    dicts = [[{f"b{k}": float(v) for k, v in enumerate(row)} for row in x] for x in X]
    _, theirs, last = crfsuite(dicts, Y, 50, dense=True)
    return {"case": "w7", "ours": {"seconds": seconds, "objective": crf.trace_[-1]["objective"] * n},
            "crfsuite": {"seconds": theirs, "objective": last.get("loss")}, "times_faster": theirs / seconds}  # fmt: skip


def run_letters():
    data = letters.load()
    fold = data.folds
    first = [k for k in range(len(data.words)) if fold[k] == 0]
    rest = [k for k in range(len(data.words)) if fold[k] != 0]
    X, Y = [np.asarray(data.words[k], dtype=np.float64) for k in first], [np.asarray(data.labels[k]) for k in first]
    n = sum(map(len, Y))
    crf, seconds = ours(X, Y, n, 200, "linear", intercept=True)
    test = [np.asarray(data.words[k], dtype=np.float64) for k in rest]
    error = 1 - crf.score(test, [np.asarray(data.labels[k]) for k in rest])
    return {"case": "letters", "ours": {"error": error, "seconds": seconds}, "bar": 0.201}


CASES = {"conll": run_conll, "w7": run_w7, "letters": run_letters}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(json.dumps(CASES[name]()), flush=True)
