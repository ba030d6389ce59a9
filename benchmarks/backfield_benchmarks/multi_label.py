"""MultiLabelCRF beside ClassifierChain and one logistic regression per label.

    python -m backfield_benchmarks.multi_label

Three sets: scikit-learn's generator; labels drawn from a field with strong couplings; digits (8 x 8 pixels of scikit-learn's
``load_digits``) whose labels are the seven segments of a display. Half of the rows is learned from, half is scored; all
models see standardised features, and C = 1.
"""

import argparse
import json
import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.preprocessing import StandardScaler

import backfield as bf
from backfield.estimators.label_tree import LabelTree

#: Segments a .. g of the digits 0 .. 9.
SEGMENTS = ["1111110", "0110000", "1101101", "1111001", "0110011", "1011011", "1011111", "1110000", "1111111", "1111011"]


def generated(seed):
    return make_multilabel_classification(2000, n_features=30, n_classes=8, n_labels=3, random_state=seed)


def coupled(seed, n_rows=2000, n_labels=8, n_features=10):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(n_rows, n_features)), rng.normal(size=(n_features, n_labels)) / 3
    tree = LabelTree(n_labels, np.stack(np.triu_indices(n_labels, 1), axis=1))
    couplings = rng.choice([-2.0, 0.0, 2.0], len(tree.pairs), p=[0.3, 0.4, 0.3])
    Y = np.full((n_rows, n_labels), -1)
    for k in range(n_labels):  # one label after the other, given those before: an exact sample
        p = tree.sums(X @ W, couplings, Y).labels[:, k]
        Y[:, k] = rng.random(n_rows) < p
    return X, Y


def segments(seed):
    X, digits = load_digits(return_X_y=True)
    X = X + 6 * np.random.default_rng(seed).normal(size=X.shape)  # clean ones are all but solved
    return X, np.array([[int(mark) for mark in SEGMENTS[digit]] for digit in digits])


SETS = {"generated": generated, "coupled": coupled, "digits": segments}


def models():
    plain = LogisticRegression(C=1.0, max_iter=1000)
    return {
        "one per label": MultiOutputClassifier(plain),
        "ClassifierChain": ClassifierChain(plain),
        "MultiLabelCRF": bf.MultiLabelCRF(),
        "MultiLabelCRF, decoder='map'": bf.MultiLabelCRF(decoder="map"),
    }


def scores(model, X, Y, test, truth):
    start = time.process_time()
    model = clone(model).fit(X, Y)
    seconds = time.process_time() - start
    found, p = model.predict(test), model.predict_proba(test)
    p = np.stack([each[:, 1] for each in p], axis=1) if isinstance(p, list) else p
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return {
        "hamming": float((found != truth).mean()),
        "exact_match": float((found == truth).all(axis=1).mean()),
        "log_loss": float(-np.log(np.where(truth == 1, p, 1 - p)).mean()),
        "seconds": seconds,
    }


def rows(seeds=3):
    for name, make in SETS.items():
        for model_name, model in models().items():
            found = []
            for seed in range(seeds):
                X, Y = make(seed)
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = order[: len(X) // 2], order[len(X) // 2 :]
                scaler = StandardScaler().fit(X[train])
                found.append(scores(model, scaler.transform(X[train]), Y[train], scaler.transform(X[test]), Y[test]))
            mean = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
            yield {"set": name, "labels": Y.shape[1], "model": model_name} | mean


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", help="also write the rows to a file")
    options = parser.parse_args()
    table = []
    print("| set | labels | model | Hamming | exact match | log loss | seconds |\n|---|---|---|---|---|---|---|")
    for row in rows(options.seeds):
        table.append(row)
        numbers = [f"{row[key]:.4f}" for key in ("hamming", "exact_match", "log_loss")] + [f"{row['seconds']:.2f}"]
        print(f"| {row['set']} | {row['labels']} | {row['model']} | {' | '.join(numbers)} |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"command": "python -m backfield_benchmarks.multi_label", "rows": table}, file, indent=1)


if __name__ == "__main__":
    main()
