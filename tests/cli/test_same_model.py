"""The command line and Python give the same model from the same data and settings; inputs that only files have."""

import json

import numpy as np
import pytest
from PIL import Image

import backfield as bf
from backfield.datasets.conll import window_features, window_template
from tests.data.files.test_graphs import graphs, write_arrays, write_lines

TEXT = "the DT B-NP\ncat NN I-NP\nsat VBD O\n\na DT B-NP\ndog NN I-NP\nran VBD O\n\n" * 4


def test_images(call, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (6, 7, 8))
    X = y[..., None] + rng.normal(size=(6, 7, 8, 2))
    np.savez(tmp_path / "a.npz", images=X, masks=y)
    code, out, err = call("fit", tmp_path / "a.npz", "-o", tmp_path / "m.bf", "--quiet")
    assert (code, err) == (0, "") and "sweeps of 5" in out
    crf = bf.GridCRF().fit([x.astype(np.float32) for x in X], list(y))
    found = bf.load(tmp_path / "m.bf")
    np.testing.assert_array_equal(found.weights_, crf.weights_)
    assert found.inference_ == crf.inference_
    options = {"l2": 0.01, "inference": "tree_reweighted(n_iter=3)", "loss": "univariate_quadratic", "gradient": None}
    shell = [x for key, value in options.items() if value is not None for x in (f"--{key}", value)]
    assert call("fit", tmp_path / "a.npz", "-o", tmp_path / "m.bf", "--quiet", *shell)[0] == 0
    crf = bf.GridCRF(**options).fit([x.astype(np.float32) for x in X], list(y))
    np.testing.assert_array_equal(bf.load(tmp_path / "m.bf").weights_, crf.weights_)
    assert call("fit", tmp_path / "a.npz", "-o", tmp_path / "m.bf", "--l2", "much")[0] == 2


def test_sentences(call, tmp_path):
    (tmp_path / "a.conll").write_text(TEXT)
    assert call("fit", tmp_path / "a.conll", "-o", tmp_path / "m.bf", "--quiet")[0] == 0
    rows = [[line.split() for line in part.split("\n")] for part in TEXT.strip().split("\n\n")]
    tokens = [[tuple(row[:2]) for row in sentence] for sentence in rows]
    X = [window_features(sentence, window_template(2)) for sentence in tokens]
    crf = bf.ChainCRF(unary="observed_linear").fit(X, [[row[2] for row in sentence] for sentence in rows])
    np.testing.assert_array_equal(bf.load(tmp_path / "m.bf").weights_, crf.weights_)


@pytest.mark.parametrize("write", [write_lines, write_arrays])
def test_graphs(call, tmp_path, write):
    made = graphs()
    train, model = tmp_path / ("train.jsonl" if write is write_lines else "train.npz"), tmp_path / "m.bf"
    write(train, made)
    assert call("fit", train, "-o", model, "--quiet")[::2] == (0, "")
    X = [bf.Sample(bf.Graph.from_edges(e, n_variables=len(x), labels=2), x, d) for x, e, d, _ in made]
    crf = bf.GraphCRF().fit(X, [y for *_, y in made])
    np.testing.assert_array_equal(bf.load(model).weights_, crf.weights_)
    out = tmp_path / f"out{train.suffix}"
    assert call("predict", model, train, "-o", out, "--proba")[0] == 0
    predicted = crf.predict(X)
    if write is write_lines:
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert [row["labels"] for row in rows] == [each.tolist() for each in predicted]
        np.testing.assert_allclose(rows[0]["probabilities"], crf.predict_proba(X)[0], atol=1e-6)
    else:
        np.testing.assert_array_equal(np.load(out)["labels"], np.concatenate(predicted))
    code, out, _ = call("evaluate", model, train, "--json")
    assert json.loads(out)["accuracy"] == pytest.approx(crf.score(X, [y for *_, y in made]))
    assert call("fit", train, "-o", model, "--quiet", "--features", "neighbours")[0] == 0
    assert bf.load(model).n_features_in_ == 4


def folder(path, ending, positive=255):
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (path / name).mkdir(parents=True)
    for k in range(5):
        mask = (rng.random((9, 10)) < 0.5).astype(np.uint8)
        noisy = np.clip(100 * mask + 60 + 20 * rng.normal(size=mask.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(path / "images" / f"{k}{ending}")
        Image.fromarray(mask * np.uint8(positive)).save(path / "masks" / f"{k}{ending}")
    return path


def test_masks_of_two_colours(call, tmp_path):
    data, model = folder(tmp_path / "data", ".png"), tmp_path / "m.bf"
    code, _, err = call("fit", data, "-o", model, "--quiet")
    assert code == 2 and "--positive 255" in err
    quick = ["--learner", "lbfgs(max_iter=10)", "--quiet", "--features", "local"]
    assert call("fit", data, "-o", model, "--positive", 255, *quick)[::2] == (0, "")
    code, out, _ = call("evaluate", model, data, "--json")
    assert json.loads(out)["accuracy"] > 0.8
    assert call("predict", model, data, "-o", tmp_path / "out")[0] == 0
    written = np.asarray(Image.open(tmp_path / "out" / "0.png"))
    assert written.dtype == np.uint8 and set(np.unique(written)) == {0, 255}
    np.savez(tmp_path / "a.npz", X=np.zeros((1, 2, 1)), y=np.zeros((1, 2), int))
    assert call("fit", tmp_path / "a.npz", "-o", model, "--positive", 255)[0] == 2
