"""Model files that version 0.1.0 wrote still load, and predict the same."""

from pathlib import Path

import numpy as np
import pytest

import backfield as bf

FOLDER = Path(__file__).parents[1] / "data" / "models_0_1"


@pytest.fixture(scope="module")
def kept():
    return np.load(FOLDER / "predictions.npz")


def test_a_grid(kept):
    crf = bf.load(FOLDER / "grid.bf")
    assert type(crf) is bf.GridCRF and crf.preprocessing_ == {"format": "arrays", "features": "raw", "edges": "given"}
    X = [bf.GridSample(*(kept[f"grid.{key}"] for key in ("features", "horizontal", "vertical")))]
    np.testing.assert_array_equal(crf.predict(X)[0], kept["grid.labels"])
    np.testing.assert_allclose(crf.predict_proba(X)[0], kept["grid.proba"], atol=1e-6)


def test_a_chain_of_named_features(kept):
    crf = bf.load(FOLDER / "chain.bf")
    assert type(crf) is bf.ChainCRF and "word=dog" in crf.feature_names_
    X = [[{"word": word, "bias": 1.0} for word in ("a", "dog", "ran", "home")]]
    np.testing.assert_array_equal(crf.predict(X)[0], kept["chain.labels"])
    np.testing.assert_allclose(crf.predict_proba(X)[0], kept["chain.proba"], atol=1e-12)


def test_a_graph_with_types(kept):
    crf = bf.load(FOLDER / "graph.bf")
    assert type(crf) is bf.GraphCRF and len(crf.layout_.unary) == 2
    graph = bf.Graph([2, 2, 3], [(0, 1), (1, 2)])
    X = [bf.Sample(graph, kept["graph.features"], node_types=[0, 0, 1], factor_types=[0, 1])]
    np.testing.assert_array_equal(crf.predict(X)[0], kept["graph.labels"])
    np.testing.assert_allclose(np.concatenate(crf.predict_proba(X)[0]), kept["graph.proba"], atol=1e-12)
    assert crf.score(X, [kept["graph.labels"]]) == 1
