"""Taggers on CoNLL-2000 beside python-crfsuite, in one run: time to its objective, memory, prediction, model size, L1.

    python -m backfield_benchmarks.conll [--sentences N] [--threads 2] [--save]
    python -m backfield_benchmarks.conll --memory | --l1 C1 | --formats [--save]

Processor time of one thread, wall time of two. Both start from the same list of feature dicts and fit the likelihood with
c2 = 1. ``times`` is how much sooner ours has an objective, in CRFsuite's units, below that of CRFsuite after 100 iterations;
``with_features`` counts the reading of the dicts on both sides (CRFsuite: ``append``). ``--save`` keeps the figures in
docs/results/studies/conll.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import backfield as bf
from backfield.datasets import conll
from backfield.estimators.crfsuite_model import write_crfsuite
from backfield.metrics.tally import chunk_scores
from backfield_benchmarks.cells import Cells


def sentences(count):
    """Return features and labels of training, and of test."""
    data = conll.load(os.environ.get("BACKFIELD_DATA"))
    chosen = slice(None, count)
    X, Xt = ([conll.window_features(each) for each in part[chosen]] for part in (data.train, data.test))
    return X, data.train_labels[chosen], Xt, data.test_labels[chosen]


def crfsuite(X, y, max_iterations, c1=0.0):
    """Train; return the file, processor seconds of append and of train, and the last row of the log."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    trainer.set_params({"c1": c1, "c2": 1.0, "max_iterations": max_iterations, "feature.possible_transitions": True})
    start = time.process_time()
    for features, labels in zip(X, y, strict=True):
        trainer.append(features, labels)
    middle = time.process_time()
    path = tempfile.mktemp(suffix=".crfsuite")
    trainer.train(path)
    return path, middle - start, time.process_time() - middle, trainer.logparser.last_iteration


class Watch:
    """Stops a fit at an objective and remembers the clocks."""

    def __init__(self, target, n):
        self.target, self.n, self.rows = target, n, []

    def __call__(self, iteration, w, row):
        self.rows.append((iteration, row["objective"] * self.n, time.process_time(), time.perf_counter()))
        return self.target is not None and self.rows[-1][1] <= self.target


def fit(X, y, target, n_jobs=1, c1=0.0, max_iter=200):
    """Fit until the target; return the model and processor and wall seconds from the dicts and from the first row on."""
    n = sum(map(len, y))
    watch = Watch(target, n)
    name = f"owlqn(l1={c1 / n}, " if c1 else "lbfgs("
    crf = bf.ChainCRF(unary="observed_linear", fit_intercept=False, l2=1 / n, decoder="map", n_jobs=n_jobs)
    crf.set_params(separator=":", learner=f"{name}max_iter={max_iter}, tol=1e-12)")
    start = time.process_time(), time.perf_counter()
    crf.fit(X, y, callbacks=[watch])
    last, first = watch.rows[-1], watch.rows[0]
    found = {"iterations": last[0], "objective": last[1], "processor": last[2] - first[2], "wall": last[3] - first[3],
             "processor_with_features": last[2] - start[0], "wall_with_features": last[3] - start[1]}  # fmt: skip
    return crf, found


def peak(count):
    """Return the peak of a process that makes the dicts and fits, and that of one that makes the dicts alone, in MB."""
    return [
        float(subprocess.run([sys.executable, "-m", "backfield_benchmarks.conll", "--peak", kind, *_sentences(count)],
                             check=True, capture_output=True, text=True).stdout)
        for kind in ("fit", "dicts")
    ]  # fmt: skip


def _sentences(count):
    return [] if count is None else ["--sentences", str(count)]


def _peak(kind, count):
    data = conll.load(os.environ.get("BACKFIELD_DATA"))
    X, y = [conll.window_features(each) for each in data.train[:count]], data.train_labels[:count]
    if kind == "fit":
        fit(X, y, None, max_iter=20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _median(function, repeats=3):
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        found = function()
        seconds.append(time.process_time() - start)
    return found, sorted(seconds)[repeats // 2]


def prediction(crf, path, Xt, yt):
    """Return tokens per second of both, and F1 of the chunks."""
    import pycrfsuite

    tagger, tokens = pycrfsuite.Tagger(), sum(map(len, Xt))
    tagger.open(path)
    crf.predict(Xt[:100])
    mine, seconds = _median(lambda: [each.tolist() for each in crf.predict(Xt)])
    theirs, their_seconds = _median(lambda: [tagger.tag(each) for each in Xt])
    return {"tokens_per_second": tokens / seconds, "crfsuite": tokens / their_seconds, "times": their_seconds / seconds,
            "F1": 100 * chunk_scores(yt, mine).f1, "crfsuite_F1": 100 * chunk_scores(yt, theirs).f1}  # fmt: skip


def compare(count, threads):
    """Print one line per comparison."""
    X, y, Xt, yt = sentences(count)
    fit(X[:30], y[:30], None, max_iter=2)  # compiles
    path, append, train, last = crfsuite(X, y, 100)
    show("crfsuite", iterations=last["num"], objective=last["loss"], append=append, train=train)
    crf, found = fit(X, y, last["loss"])
    show("one thread", **found, times=train / found["processor"],
         times_with_features=(append + train) / found["processor_with_features"])  # fmt: skip
    if threads > 1:
        _, found = fit(X, y, last["loss"], threads)
        show(f"{threads} threads", **found, times=train / found["wall"],
             times_with_features=(append + train) / found["wall_with_features"])  # fmt: skip
    show("prediction", **prediction(crf, path, Xt, yt))
    own = Path(tempfile.mkdtemp()) / "model.bf"
    crf.save(own)
    show("file", bytes_of_bf=own.stat().st_size, bytes_of_ours_as_crfsuite=len(write_crfsuite(crf)),
         crfsuite=Path(path).stat().st_size)  # fmt: skip


def compare_l1(count, c1):
    """Print objective and number of weights with L1."""
    X, y, _, _ = sentences(count)
    _, _, train, last = crfsuite(X, y, 2**31 - 1, c1)
    crf, found = fit(X, y, None, c1=c1, max_iter=600)
    show("l1", c1=c1, **found, weights=int((crf.weights_ != 0).sum()), crfsuite_objective=last["loss"],
         crfsuite_weights=last["active_features"], crfsuite_seconds=train, crfsuite_iterations=last["num"])  # fmt: skip


def tutorial_features(sentence):
    """Return the features of sklearn-crfsuite's tutorial: texts, booleans and numbers by their names."""
    found = [_word(word, tag, "") | {"bias": 1.0, "word[-3:]": word[-3:], "word[-2:]": word[-2:],
             "word.isdigit()": word.isdigit()} for word, tag in sentence]  # fmt: skip
    for t in range(len(sentence)):
        for step, prefix, end in ((-1, "-1:", "BOS"), (1, "+1:", "EOS")):
            word, tag = sentence[t + step] if 0 <= t + step < len(sentence) else ("", "")
            found[t] |= _word(word, tag, prefix) if word else {end: True}
    return found


def _word(word, tag, prefix):
    return {f"{prefix}word.lower()": word.lower(), f"{prefix}word.istitle()": word.istitle(),
            f"{prefix}word.isupper()": word.isupper(), f"{prefix}postag": tag, f"{prefix}postag[:2]": tag[:2]}  # fmt: skip


def compare_formats(count):
    """Print tokens per second of prediction for each form that features may have; the same model on both sides."""
    data = conll.load(os.environ.get("BACKFIELD_DATA"))
    forms: dict[str, Callable[[list[tuple[str, ...]]], list[Any]]] = {
        "dicts of numbers": conll.window_features,
        "lists of names": lambda sentence: [list(position) for position in conll.window_features(sentence)],
        "tutorial dicts": tutorial_features,
    }
    for name, form in forms.items():
        X, Xt = ([form(each) for each in part[:count]] for part in (data.train, data.test))
        path, *_ = crfsuite(X, data.train_labels[:count], 5)
        show(f"prediction of {name}", **prediction(bf.load(path), path, Xt, data.test_labels[:count]))


#: Where figures are kept; None: nowhere.
SAVED = None


def show(case, **figures):
    """Print figures as JSON, and keep them."""
    print(json.dumps({"case": case} | figures), flush=True)
    if SAVED is not None:
        SAVED.rows[case] = figures
        SAVED.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--l1", type=float)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--formats", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--peak", choices=["fit", "dicts"])
    chosen = parser.parse_args()
    if chosen.save:
        SAVED = Cells("conll", "python -m backfield_benchmarks.conll --threads 2; --memory; --l1 1; --formats")
    if chosen.peak:
        _peak(chosen.peak, chosen.sentences)
    elif chosen.memory:
        show("memory", **dict(zip(("peak_MB_with_dicts", "dicts_alone_MB"), peak(chosen.sentences), strict=True)))
    elif chosen.formats:
        compare_formats(chosen.sentences)
    elif chosen.l1 is not None:
        compare_l1(chosen.sentences, chosen.l1)
    else:
        compare(chosen.sentences, chosen.threads)
