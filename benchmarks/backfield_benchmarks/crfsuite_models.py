"""Models of two products, read here and by python-crfsuite: the same tags and marginals on real and generated sequences.

    python -m backfield_benchmarks.crfsuite_models [--sequences 10000]

Sequences are drawn from the attributes of each model and names that it does not know, with values 1 and others; every tenth
is compared through a round trip of our writer, too.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import backfield as bf
from backfield.estimators.crfsuite_model import write_crfsuite

FOLDER = Path(os.environ.get("BACKFIELD_DATA", "../shared/data")) / "crfsuite_models"


def sequences(names, count, seed=0):
    """Yield lists of dicts {attribute: value}."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        plain = number % 2 == 0
        sequence = []
        for _ in range(rng.integers(1, 25)):
            chosen = [names[k] for k in rng.integers(0, len(names), size=rng.integers(0, 20))]
            values = np.ones(len(chosen)) if plain else rng.normal(size=len(chosen)).round(3)
            sequence.append(dict(zip(chosen, values.tolist(), strict=True)) | {"unknown attribute": 1.0})
        yield sequence


def compare(path, count):
    """Return how many sequences have other tags, and the largest difference of a marginal."""
    import pycrfsuite

    crf, tagger, again = bf.load(path), pycrfsuite.Tagger(), pycrfsuite.Tagger()
    tagger.open(str(path))
    copy = Path(tempfile.mkdtemp()) / "copy.crfsuite"
    copy.write_bytes(write_crfsuite(crf))
    again.open(str(copy))
    X = list(sequences(list(crf.feature_names_), count))
    labels, wrong, copied, worst = crf.classes_.tolist(), 0, 0, 0.0
    for number, (x, tags, p) in enumerate(zip(X, crf.predict(X), crf.predict_proba(X), strict=True)):
        theirs = tagger.tag(x)
        wrong += theirs != tags.tolist()
        for t in range(len(x)):
            worst = max(worst, *(abs(tagger.marginal(label, t) - p[t, k]) for k, label in enumerate(labels)))
        if number % 10 == 0:
            copied += again.tag(x) != theirs
    return {"model": path.name, "sequences": count, "positions": sum(map(len, X)), "other_tags": wrong,
            "largest_difference_of_a_marginal": worst, "other_tags_after_a_round_trip": copied}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=10_000)
    chosen = parser.parse_args()
    for path in sorted(FOLDER.glob("*.crfsuite")):
        print(json.dumps(compare(path, chosen.sequences)), flush=True)
