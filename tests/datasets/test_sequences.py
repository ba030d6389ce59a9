import gzip

import numpy as np
import pytest

from backfield.datasets import conll, letters
from backfield.errors import InputError
from tests.datasets.real import real_data


def test_columns(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("\ufeffThe DT B\ncät\tNN  I\r\n\n\n \nruns VB O\n".encode())
    assert conll.read_columns(path) == [[("The", "DT", "B"), ("cät", "NN", "I")], [("runs", "VB", "O")]]
    tokens, labels = conll.split_labels(conll.read_columns(path))
    assert tokens[0] == [("The", "DT"), ("cät", "NN")] and labels == [["B", "I"], ["O"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a b c\nd e\n", r"line 2: received 2 columns, 3 are needed as on line 1"),
        (b"a b c\n\nd\n", r"line 3: received 1 column, 3 are needed as on line 1"),
        (b"\n\n", "has no sentences"),
        (b"a b\n\xff c\n", "not a text file in UTF-8"),
    ],
)
def test_bad_columns(tmp_path, text, words):
    path = tmp_path / "file.txt"
    path.write_bytes(text)
    with pytest.raises(InputError, match=words) as caught:
        conll.read_columns(path)
    assert str(path) in str(caught.value)


def test_other_complaints(tmp_path):
    (tmp_path / "file.txt").write_text("a b\n")
    with pytest.raises(InputError, match=r"line 1: received 2 columns, 3 are needed\."):
        conll.read_columns(tmp_path / "file.txt", n_columns=3)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        conll.read_columns(tmp_path / "none.txt")
    with pytest.raises(InputError, match="cannot be read"):
        conll.read_columns(tmp_path)
    with pytest.raises(InputError, match="one column"):
        conll.split_labels([[("a",)]])


def test_templates_of_chunking():
    templates = conll.window_template()
    assert len(templates) == 19 == len(set(templates))
    assert templates[:7] == [*(((0, t),) for t in range(-2, 3)), ((0, -1), (0, 0)), ((0, 0), (0, 1))]
    sizes = [len(template) for template in templates[7:]]
    assert sizes == [1] * 5 + [2] * 4 + [3] * 3
    assert templates[-1] == ((1, 0), (1, 1), (1, 2))
    assert len(conll.window_template(1)) == 7 and len(conll.window_template(3)) == 31


def test_features_of_tokens():
    found = conll.window_features([("The", "DT"), ("cat", "NN"), ("runs", "VB")])
    assert set(found[0]) == {
        *("w[0]=The", "w[1]=cat", "w[2]=runs", "w[0]|w[1]=The|cat", "pos[0]=DT", "pos[1]=NN", "pos[2]=VB"),
        *("pos[0]|pos[1]=DT|NN", "pos[1]|pos[2]=NN|VB", "pos[0]|pos[1]|pos[2]=DT|NN|VB", "__BOS__"),
    }
    assert "w[-1]|w[0]=The|cat" in found[1] and "__EOS__" in found[2] and "__EOS__" not in found[1]
    assert all(value == 1.0 for token in found for value in token.values())
    (only,) = conll.window_features([("Go", "VB", "x")])
    assert set(only) == {"w[0]=Go", "pos[0]=VB", "c2[0]=x", "__BOS__", "__EOS__"}
    assert conll.window_features([]) == []
    assert conll.window_features([("a",), ("b",)], [((0, 1),)]) == [{"w[1]=b": 1.0, "__BOS__": 1.0}, {"__EOS__": 1.0}]


def test_the_real_sentences():
    data = conll.load(real_data("conll2000"))
    assert len(data.train) == len(data.train_labels) == 8936 and len(data.test) == len(data.test_labels) == 2012
    assert len({label for sentence in data.train_labels for label in sentence}) == 22
    assert all(len(a) == len(b) for a, b in zip(data.test, data.test_labels, strict=True))
    names = {name for sentence in data.train[:200] for token in conll.window_features(sentence) for name in token}
    assert 10_000 < len(names) < 40_000


def letters_npz(folder, **changes):
    bits = np.random.default_rng(0).integers(2, size=(5, 128), dtype=np.uint8)
    arrays = {
        "pixels": np.packbits(bits, axis=1),
        "labels": np.array([0, 1, 25, 3, 4], dtype=np.uint8),
        "word_ptr": np.array([0, 2, 5], dtype=np.int32),
        "folds": np.array([0, 7], dtype=np.uint8),
    }
    (folder / "ocr_letters").mkdir(exist_ok=True)
    np.savez(folder / "ocr_letters" / "letters.npz", **{**arrays, **changes})
    return bits


def test_letters_from_a_folder(tmp_path):
    bits = letters_npz(tmp_path)
    data = letters.load(tmp_path)
    assert [word.shape for word in data.words] == [(2, 128), (3, 128)] and data.words[0].dtype == np.float32
    assert np.array_equal(np.concatenate(data.words), bits)
    assert data.labels[1].tolist() == [25, 3, 4] and data.folds.tolist() == [0, 7]


def test_letters_as_the_authors_give_them(tmp_path):
    bits = letters_npz(tmp_path)
    expected = letters.load(tmp_path)
    (tmp_path / "ocr_letters" / "letters.npz").unlink()
    heads = ["1 a 2 1 1 0", "2 b -1 1 2 0", "3 z 4 3 1 7", "4 d 5 3 2 7", "5 e -1 3 3 7"]
    lines = ["\t".join([*head.split(), *map(str, row)]) + "\t\n" for head, row in zip(heads, bits.tolist(), strict=True)]
    path = tmp_path / "ocr_letters" / "letter.data.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    found = letters.load(tmp_path)
    for a, b in zip(found[:2], expected[:2], strict=True):
        assert all(np.array_equal(p, q) and p.dtype == q.dtype for p, q in zip(a, b, strict=True))
    assert np.array_equal(found.folds, expected.folds)
    for broken in ("".join(lines[:-1]), "a b\n", ""):
        path.write_bytes(gzip.compress(broken.encode()))
        with pytest.raises(InputError, match=r"letter.data.gz: is not the"):
            letters.load(tmp_path)
    path.write_bytes(b"rubbish")
    with pytest.raises(InputError, match=r"letter.data.gz: is not the"):
        letters.load(tmp_path)


def test_bad_letters(tmp_path):
    letters_npz(tmp_path, folds=np.zeros(3))
    with pytest.raises(InputError, match="do not belong together"):
        letters.load(tmp_path)
    (tmp_path / "ocr_letters" / "letters.npz").write_bytes(b"PK rubbish")
    with pytest.raises(InputError, match=r"letters.npz: is not a file with"):
        letters.load(tmp_path)
    (tmp_path / "ocr_letters" / "letters.npz").unlink()
    with pytest.raises(InputError, match=r"has no letters.npz and no letter.data.gz"):
        letters.load(tmp_path)


def test_the_real_letters():
    data = letters.load(real_data("ocr_letters"))
    assert len(data.words) == 6877 and sum(map(len, data.words)) == 52152
    assert np.bincount(data.folds).tolist() == [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]
    assert all(len(a) == len(b) for a, b in zip(data.words, data.labels, strict=True))
    assert set(np.unique(data.words[0])) <= {0, 1} and max(label.max() for label in data.labels) == 25
