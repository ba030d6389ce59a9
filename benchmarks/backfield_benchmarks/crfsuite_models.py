"""Models of two products, read here and by python-crfsuite: the same tags and marginals on real and generated sequences.

    python -m backfield_benchmarks.crfsuite_models [--sequences 10000] [--save]

Generated sequences are drawn from the attributes of each model and names that it does not know, with values 1 and others.
Real ones are the test sentences of CoNLL-2000 and WNUT-17 with features such as the products make them. All are tagged by a
round trip of our writer, too. ``--save`` keeps the figures in docs/results/studies/crfsuite-models.json.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

import backfield as bf
from backfield.datasets.conll import read_columns
from backfield.estimators.crfsuite_model import write_crfsuite
from backfield.features import word_shape
from backfield_benchmarks.cells import Cells

DATA = Path(os.environ.get("BACKFIELD_DATA", "../shared/data"))


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


def ingredient_features(words):
    """Return features with the names of the ingredient parser."""
    return [
        {"bias": "", "token": word, "prefix_3": word[:3], "suffix_3": word[-3:], "is_capitalised": word.istitle(),
         "word_shape": word_shape(word)}
        | {f"{name}stem": words[t + step].lower() for name, step in (("", 0), ("prev_", -1), ("next_", 1), ("next2_", 2))
           if 0 <= t + step < len(words)}
        for t, word in enumerate(words)
    ]  # fmt: skip


def vietnamese_features(words):
    """Return features with the names of underthesea, as lists of names."""
    out = []
    for t in range(len(words)):
        here = {step: words[t + step] for step in (-2, -1, 0, 1, 2) if 0 <= t + step < len(words)}
        names = [f"T[{step}]={word}" for step, word in here.items()]
        names += [f"T[{step}].lower={word.lower()}" for step, word in here.items()]
        names += [f"T[{step}].istitle={word.istitle()}" for step, word in here.items()]
        out.append([*names, *(f"T[{step}].lower=BOS" for step in (-2, -1) if t + step < 0)])
    return out


def real(name):
    """Return the test sentences of two tasks with the features of a product."""
    form = {"ingredients.crfsuite": ingredient_features, "ner_vi.crfsuite": vietnamese_features}[name]
    files = (DATA / "conll2000" / "test.txt", DATA / "wnut17" / "test.conll")
    return [form([token[0] for token in sentence]) for file in files for sentence in read_columns(file)]


def compare(path, count):
    """Return how many sequences have other tags, and the largest difference of a marginal."""
    import pycrfsuite

    crf, tagger, again = bf.load(path), pycrfsuite.Tagger(), pycrfsuite.Tagger()
    tagger.open(str(path))
    copy = Path(tempfile.mkdtemp()) / "copy.crfsuite"
    copy.write_bytes(write_crfsuite(crf))
    again.open(str(copy))
    texts = real(path.name)
    X = texts + list(sequences(list(crf.feature_names_), count))
    labels, wrong, copied, worst = crf.classes_.tolist(), 0, 0, 0.0
    for x, tags, p in zip(X, crf.predict(X), crf.predict_proba(X), strict=True):
        theirs = tagger.tag(x)
        wrong += theirs != tags.tolist()
        copied += again.tag(x) != theirs
        for t in range(len(x)):
            worst = max(worst, *(abs(tagger.marginal(label, t) - p[t, k]) for k, label in enumerate(labels)))
    return {"generated_sequences": count, "real_sequences": len(texts), "positions": sum(map(len, X)), "other_tags": wrong,
            "largest_difference_of_a_marginal": worst, "other_tags_after_a_round_trip": copied}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    cells = Cells("crfsuite-models", f"python -m backfield_benchmarks.crfsuite_models --sequences {chosen.sequences}")
    cells.rows = {}
    for path in sorted((DATA / "crfsuite_models").glob("*.crfsuite")):
        cells.rows[path.name] = compare(path, chosen.sequences)
        print(path.name, json.dumps(cells.rows[path.name]), flush=True)
    if chosen.save:
        cells.save()
