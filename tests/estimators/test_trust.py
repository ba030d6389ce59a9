"""Model files from strangers: refused in one sentence, or the predictions of the model that was saved."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.errors import InputError
from backfield.estimators.model_file import checksum

SENTENCES = [[{"w=a": 1.0}, {"w=b": 1.0}], [{"w=b": 1.0, "bias": 0.5}]]


def chain_file(path, **params):
    bf.ChainCRF(unary="observed_linear", learner="lbfgs(max_iter=3)", **params).fit(SENTENCES, [["A", "B"], ["B"]]).save(
        path
    )
    return path


def forge(path, text=lambda text: None, tensors=lambda tensors: None, signed=True):
    """Change a model's text and tensors in place, and sign it again."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    words = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["backfield"])
    arrays = {key: np.array(array) for key, array in parse_tensors(data).items()}
    text(words)
    tensors(arrays)
    metadata = {"backfield": json.dumps(words)}
    if signed:
        metadata["checksum"] = checksum(metadata["backfield"], arrays)
    path.write_bytes(format_tensors(arrays, metadata=metadata))
    return path


def refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        bf.load(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_forged_file_that_keeps_its_content_loads(tmp_path):
    path = chain_file(tmp_path / "m.bf")
    before = bf.load(path).predict_proba(SENTENCES)
    after = bf.load(forge(path)).predict_proba(SENTENCES)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("unary.0.labels", lambda a: np.full_like(a, 2**30)),
        ("unary.0.labels", lambda a: np.full_like(a, -1)),
        ("unary.0.labels", lambda a: a.astype(np.float32)),
        ("unary.0.ptr", lambda a: a + 2**40),
        ("unary.0.ptr", lambda a: a[::-1].copy()),
        ("unary.0.ptr", lambda a: a[:-1].copy()),
        ("unary.0.ptr", lambda a: np.zeros_like(a)),
    ],
)
def test_a_pattern_that_goes_beyond_the_weights(tmp_path, name, value):
    path = chain_file(tmp_path / "m.bf")
    refused(forge(path, tensors=lambda arrays: arrays.update({name: value(arrays[name])})), "pattern of observed_linear")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path, value):
    path = chain_file(tmp_path / "m.bf")
    refused(forge(path, tensors=lambda arrays: arrays["weights"].__setitem__(0, value)), "weights must be finite")


def test_a_changed_number_breaks_the_checksum(tmp_path):
    path = chain_file(tmp_path / "m.bf")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(path, "checksum is wrong")
    refused(forge(chain_file(path), signed=False), "checksum is wrong")


DEEP = json.loads("[" * 500 + "]" * 500)
BLOCK = ["linear", None, 0, 4, True]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"}, {"format": True}, {"format": 99}, {"estimator": 3}, {"estimator": []}, {"params": []},
        {"params": None}, {"classes": 3}, {"classes": []}, {"classes": [0.5, 1]}, {"classes": ["A", "A"]},
        {"classes": ["A"]}, {"classes": ["A", "B", "C"]}, {"classes": DEEP}, {"layout": []}, {"layout": {}},
        {"layout": DEEP}, {"layout": {"unary": [3], "factors": []}}, {"layout": {"unary": [BLOCK[:3]], "factors": [BLOCK]}},
        {"layout": {"unary": [["linear", None, -1, 2, True]], "factors": [BLOCK]}},
        {"layout": {"unary": [["linear", None, 2.5, 2, True]], "factors": [BLOCK]}},
        {"layout": {"unary": [["linear", {"eps": "x", "function": {}}, 1, 2, True]], "factors": [BLOCK]}},
        {"layout": {"unary": [["boosted_trees", {"eps": 1, "function": {"n_classes": 0}}, 1, 2, True]], "factors": [BLOCK]}},
        {"feature_names": "abc"}, {"feature_names": ["a", "a"]}, {"feature_names": ["a"]}, {"trace": 3}, {"trace": [3]},
        {"converged": "yes"}, {"preprocessing": 3}, {"structure": 3, "estimator": "Other"},
    ],
    ids=repr,
)  # fmt: skip
def test_texts_of_wrong_types_and_sizes(tmp_path, change):
    path = chain_file(tmp_path / "m.bf")
    refused(forge(path, text=lambda text: text.update(change)), str(path))


def test_a_file_without_energies_of_variables(tmp_path):
    path = chain_file(tmp_path / "m.bf")
    empty = {"layout": {"unary": [], "factors": []}}
    forge(path, lambda text: text.update(empty), lambda tensors: tensors.update(weights=np.zeros(0)))
    refused(path, "variables have no energies")


@pytest.mark.parametrize(
    "params",
    [{"inference": 3}, {"dtype": "int8"}, {"dtype": []}, {"n_jobs": "x"}, {"decoder": None}, {"a\nb": 1}, {"structure": 3}],
)
def test_parameters_that_cannot_predict(tmp_path, params):
    refused(forge(chain_file(tmp_path / "m.bf"), text=lambda text: text["params"].update(params)), "m.bf")


def test_headers_that_are_no_objects(tmp_path):
    path = tmp_path / "m.bf"
    for header in (b"3", b"[]", b"[" * 90000 + b"]" * 90000, b'{"__metadata__": 3}', b'{"__metadata__": {"backfield": 3}}'):
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        refused(path, "damaged or not a backfield model")


def test_graphs_with_more_labels_than_were_learned():
    model = bf.GraphCRF().fit([bf.Sample(bf.Graph.chain(3, 2), np.eye(3))], [[0, 1, 1]])
    for graph in (bf.Graph.chain(3, 5), bf.Graph([2, 3, 2], [(0, 1), (1, 2)]), bf.Graph([2, 2, 2], [(0, 1, 2)])):
        with pytest.raises(InputError, match="were learned"):
            model.predict([bf.Sample(graph, np.eye(3))])


def broken_csr(indices, indptr):
    matrix = csr_matrix(np.eye(2))
    matrix.indices, matrix.indptr = np.array(indices, np.int32), np.array(indptr, np.int32)
    return matrix


@pytest.mark.parametrize(("indices", "indptr"), [([0, 2**30], [0, 1, 2]), ([0, -5], [0, 1, 2]), ([0, 1], [0, 9000, 2])])
def test_sparse_features_beyond_their_shape(indices, indptr):
    X = [csr_matrix(np.eye(2))]
    model = bf.ChainCRF(unary="observed_linear").fit(X, [[0, 1]])
    with pytest.raises(InputError, match="go beyond its shape"):
        model.predict([broken_csr(indices, indptr)])
