"""WNUT-17: F1 of the usual features with and without BIO constraints, beside CRFsuite, and the calibration of spans.

    python -m backfield_benchmarks.wnut [--sentences N] [--save]

Features: windows of words, forms of words (lower case, shape, prefixes, suffixes) at -1, 0, 1. c2 = 1, 100 iterations.
``--save`` keeps the figures in docs/results/studies/wnut.json.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import backfield as bf
from backfield.datasets.conll import read_columns, split_labels
from backfield.features import joined, window_features, word_features
from backfield.metrics.conlleval import span_calibration
from backfield.metrics.tally import chunk_scores
from backfield_benchmarks.cells import Cells

FOLDER = Path(os.environ.get("BACKFIELD_DATA", "../shared/data")) / "wnut17"


def read(name, count=None):
    """Return features and labels of a part."""
    sentences, labels = split_labels(read_columns(FOLDER / f"{name}.conll"))
    return [joined(window_features(each), word_features(each)) for each in sentences[:count]], labels[:count]


def ours(X, y, Xt, yt, constraints):
    """Return figures of a fit."""
    n = sum(map(len, y))
    crf = bf.ChainCRF(unary="observed_linear", fit_intercept=False, l2=1 / n, decoder="map", learner="lbfgs(max_iter=100)")
    crf.set_params(constraints=constraints, separator=":").fit(X, y)
    guess, spans = [each.tolist() for each in crf.predict(Xt)], crf.predict_spans(Xt)
    broken = sum(tag[0] == "I" and (t == 0 or tags[t - 1] not in (tag, f"B{tag[1:]}")) for tags in guess
                 for t, tag in enumerate(tags))  # fmt: skip
    found = span_calibration(yt, spans)
    return {"constraints": constraints, "F1": 100 * chunk_scores(yt, guess).f1, "spans": sum(map(len, spans)),
            "broken_transitions": broken, "ECE_of_spans": found.error}  # fmt: skip


def crfsuite(X, y, Xt, yt):
    """Return the F1 of CRFsuite with the same features."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    trainer.set_params({"c1": 0.0, "c2": 1.0, "max_iterations": 100, "feature.possible_transitions": True})
    for features, labels in zip(X, y, strict=True):
        trainer.append(features, labels)
    path = tempfile.mktemp(suffix=".crfsuite")
    trainer.train(path)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    return {"crfsuite_F1": 100 * chunk_scores(yt, [tagger.tag(each) for each in Xt]).f1}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    (X, y), (Xt, yt) = read("train", chosen.sentences), read("test", chosen.sentences)
    rows = {"CRFsuite": crfsuite(X, y, Xt, yt)}
    for constraints in (None, "BIO"):
        rows["ours" if constraints is None else f"ours, {constraints}"] = ours(X, y, Xt, yt, constraints)
    print(json.dumps(rows, indent=1))
    if chosen.save:
        cells = Cells("wnut", "python -m backfield_benchmarks.wnut")
        cells.rows = rows
        cells.save()
