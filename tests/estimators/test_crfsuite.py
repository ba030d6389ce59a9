"""Models of CRFsuite: read, written, and refused where they are corrupt."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import backfield as bf
from backfield.data.formats._cqdb import format_strings, read_strings, string_hashes
from backfield.data.formats.crfsuite import CrfsuiteModel, format_crfsuite, read_crfsuite
from backfield.estimators.crfsuite_model import from_crfsuite, to_crfsuite, write_crfsuite
from tests.datasets.real import real_data

HERE = Path(__file__).parent.parent / "data" / "crfsuite"
SMALL = HERE / "small.crfsuite"
REAL = ("ingredients", "ner_vi")


def generated(crf, count, seed=0):
    """Sequences of known and unknown features, as lists of names and as dicts."""
    rng, names, out = np.random.default_rng(seed), list(crf.feature_names_), []
    for number in range(count):
        sequence = []
        for _ in range(rng.integers(1, 15)):
            chosen = [names[k] for k in rng.integers(len(names), size=rng.integers(0, 9))] + ["never seen"]
            values = {name: float(rng.normal()) if rng.random() < 0.5 else bool(rng.random() < 0.9) for name in chosen}
            sequence.append(chosen if number % 2 else values)
        out.append(sequence)
    return out


def test_a_model_of_crfsuite_tags_as_crfsuite_did():
    crf, stored = bf.load(SMALL), json.loads((HERE / "small.json").read_text())
    assert crf.classes_.tolist() == stored["labels"]
    X = [case["x"] for case in stored["cases"]]
    assert [tags.tolist() for tags in crf.predict(X)] == [case["tags"] for case in stored["cases"]]
    for p, case in zip(crf.predict_proba(X), stored["cases"], strict=True):
        np.testing.assert_allclose(p, case["marginals"], atol=1e-10)


@pytest.mark.parametrize("name", REAL)
def test_real_models_are_written_byte_for_byte_as_crfsuite_wrote_them(name):
    data = (real_data("crfsuite_models") / "crfsuite_models" / f"{name}.crfsuite").read_bytes()
    assert write_crfsuite(from_crfsuite(read_crfsuite(data))) == data


@pytest.mark.parametrize("name", REAL)
def test_real_models_against_crfsuite_itself(name, tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    path = real_data("crfsuite_models") / "crfsuite_models" / f"{name}.crfsuite"
    crf, theirs, again = bf.load(path), pycrfsuite.Tagger(), pycrfsuite.Tagger()
    (tmp_path / "again.crfsuite").write_bytes(write_crfsuite(crf))
    theirs.open(str(path))
    again.open(str(tmp_path / "again.crfsuite"))
    X = generated(crf, 300)
    for x, tags, p in zip(X, crf.predict(X), crf.predict_proba(X), strict=True):
        assert theirs.tag(x) == tags.tolist() == again.tag(x)
        expected = [[theirs.marginal(label, t) for label in crf.classes_] for t in range(len(x))]
        np.testing.assert_allclose(p, expected, atol=1e-10)


def test_a_model_of_ours_opens_in_crfsuite(tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    X = [[{"w": "the", "b": 1}, {"w": "dog", "b": 0.5}], [["w:a", "b"], ["w:dog"]], [{"w": "ü"}]]
    crf = bf.ChainCRF(unary="linear", fit_intercept=False, separator=":", decoder="map")
    crf.fit(X, [["D", "N"], ["D", "N"], ["X"]])
    path = tmp_path / "ours.crfsuite"
    path.write_bytes(write_crfsuite(crf))
    theirs = pycrfsuite.Tagger()
    theirs.open(str(path))
    assert [theirs.tag(x) for x in X] == [tags.tolist() for tags in crf.predict(X)] == [["D", "N"], ["D", "N"], ["X"]]
    for x, p in zip(X, crf.predict_proba(X), strict=True):
        np.testing.assert_allclose(p, _marginals(theirs, crf, x), atol=1e-10)


def _marginals(tagger, crf, x):
    tagger.set(x)
    return [[tagger.marginal(label, t) for label in crf.classes_] for t in range(len(x))]


def test_weights_survive_a_round_trip_and_zeros_are_left_out():
    model = CrfsuiteModel(
        ["B", "A"],
        ["f", "none", "g"],
        np.array([0, 2, 3, 4]),
        np.array([0, 1, 1, 0], np.int32),
        np.array([0.5, 0.0, 0.0, -2.0]),
        np.array([[1.0, 0.0], [0.0, 3.0]]),
    )
    read = read_crfsuite(format_crfsuite(model))
    assert (read.labels, read.attributes) == (["B", "A"], ["f", "g"])
    np.testing.assert_array_equal(read.transitions, model.transitions)
    np.testing.assert_array_equal(read.weights, [0.5, -2.0])
    np.testing.assert_array_equal(to_crfsuite(from_crfsuite(read)).targets, [0, 0])


def test_models_that_crfsuite_cannot_express_are_refused():
    dense = bf.ChainCRF().fit([np.eye(2)], [[0, 1]])
    with pytest.raises(bf.InputError, match="named features"):
        write_crfsuite(dense)
    with pytest.raises(bf.InputError, match="fit_intercept=False"):
        write_crfsuite(bf.ChainCRF().fit([[{"a": 1}, {"b": 1}]], [["x", "y"]]))


def test_hashes_are_those_of_lookup3():
    known = string_hashes([b"", b"Four score and seven years ago"][1:])
    assert known.tolist() == [0x17770551]  # from the comments of lookup3.c, seed 0
    keys = [b"x" * n for n in range(1, 40)]
    assert string_hashes(keys).tolist() == [reference_hash(key) for key in keys]


def reference_hash(key):
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(key)) & mask

    def turn(x, k):
        return ((x << k) | (x >> (32 - k))) & mask

    while len(key) > 12:
        a, b, c = ((x + int.from_bytes(key[4 * k : 4 * k + 4], "little")) & mask for k, x in enumerate((a, b, c)))
        for k in (4, 6, 8, 16, 19, 4):
            a = ((a - c) & mask) ^ turn(c, k)
            a, b, c = b, (c + b) & mask, a
        key = key[12:]
    a, b, c = ((x + int.from_bytes(key[4 * k : 4 * k + 4], "little")) & mask for k, x in enumerate((a, b, c)))
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - turn(b, k)) & mask
        a, b, c = b, c, a
    return b


def test_dictionaries_hold_any_text():
    texts = ["", "ü", "a" * 100, *(f"w={k}" for k in range(1000)), b"\xff".decode("utf-8", "surrogateescape")]
    assert read_strings(format_strings(texts), 0, len(texts), "strings") == texts


def mutated(data, rng):
    """Return a corrupt copy: flipped bytes, words that are large or small, a cut, or a part moved."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        kind, at = rng.integers(4), int(rng.integers(len(out)))
        if kind == 0:
            out[at] = rng.integers(256)
        elif kind == 1:
            at = int(rng.integers(12)) * 4 if rng.random() < 0.3 else at // 4 * 4
            value = int(rng.choice([0, 1, 2**32 - 1, 2**31, len(data), len(data) - 1, int(rng.integers(len(data)))]))
            out[at : at + 4] = value.to_bytes(4, "little")
        elif kind == 2 and len(out) > 60:
            del out[int(rng.integers(len(out) // 2, len(out))) :]
        else:
            size, to = int(rng.integers(1, 200)), int(rng.integers(len(out)))
            out[to : to + size] = out[at : at + size]
    return bytes(out)


def test_corrupt_files_are_read_or_refused_in_one_sentence():
    data, rng, sentences = SMALL.read_bytes(), np.random.default_rng(0), []
    tracemalloc.start()
    for _ in range(2000):
        try:
            from_crfsuite(read_crfsuite(mutated(data, rng)))
        except bf.InputError as error:
            sentences.append(str(error))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 200 < len(sentences) < 2000
    assert not [text for text in sentences if "\n" in text]
    assert peak < 100 * len(data)


def test_a_corrupt_file_is_named(tmp_path):
    path = tmp_path / "cut.crfsuite"
    path.write_bytes(SMALL.read_bytes()[:500])
    with pytest.raises(bf.InputError, match=r"cut\.crfsuite: the file is truncated: 500 of 6052 bytes\.$"):
        bf.load(path)


def test_convert_both_ways(tmp_path, capsys):
    from backfield.cli.app import run

    ours, theirs = tmp_path / "a.bf", tmp_path / "b.crfsuite"
    assert run(["convert", str(SMALL), str(ours)]) == 0
    assert run(["convert", str(ours), str(theirs)]) == 0
    assert "3 labels" in capsys.readouterr().out
    assert theirs.read_bytes() == SMALL.read_bytes()
    X = generated(bf.load(SMALL), 5)
    assert [y.tolist() for y in bf.load(ours).predict(X)] == [y.tolist() for y in bf.load(theirs).predict(X)]


@pytest.mark.parametrize(
    "position",
    [["a", "b:x", "b:c:y", "n"], {"a": True, "b": {"x": 1, "c": ["y"]}, "n": 1.0}, {"a": 1, "b": ["x", "c:y"], "n": True}],
)
def test_formats_of_features(position):
    names = bf.structures.Chain(separator=":").learn_names([[position]])
    assert set(names) == {"a", "b:x", "b:c:y", "n"}
    row = bf.structures.Chain(separator=":").sample([position], names).node_features.toarray()
    np.testing.assert_array_equal(row, np.ones((1, 4)))


def test_a_number_as_name_is_refused():
    with pytest.raises(bf.InputError, match="list of strings"):
        bf.structures.Chain().learn_names([[["a", 1]]])
