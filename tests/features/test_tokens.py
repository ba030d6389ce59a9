"""Features of tokens: windows, forms of words, templates, hashes."""

import numpy as np
import pytest

import backfield as bf
from backfield.features import Templates, hashed, joined, window_features, word_features, word_shape

SENTENCE = [("The", "DT"), ("B-52", "NN"), ("rose", "VBD")]


def test_window_features():
    first, _, last = window_features(SENTENCE)
    assert {"w[0]=The", "w[1]=B-52", "pos[0]|pos[1]|pos[2]=DT|NN|VBD", "__BOS__"} <= set(first)
    assert "w[1]=" not in "".join(last) and "__EOS__" in last
    assert list(window_features(SENTENCE, [((1, 0), (0, -1))])[1]) == ["pos[0]|w[-1]=NN|The"]


def test_word_features():
    found = word_features(SENTENCE)
    assert {"low[0]=b-52", "shape[0]=X-dd", "short[0]=X-d", "hyphen[0]", "digit[0]", "upper[0]", "low[-1]=the"} <= set(
        found[1]
    )
    assert {"prefix1=B", "prefix4=B-52", "suffix2=52"} <= set(found[1]) and "prefix5=B-52" not in found[1]
    assert "__BOS__" in found[0] and "__EOS__" in found[2] and word_features([]) == []
    assert word_shape("McDonald's") == "XxXxxxxx'x" and word_shape("AAbb11", short=True) == "Xxd"
    both = joined(window_features(SENTENCE), found)
    assert set(both[0]) == set(window_features(SENTENCE)[0]) | set(found[0])


def test_templates_of_crfpp_and_wapiti():
    text = '# words\nU00:%x[-1,0]\nU01:%x[0,0]/%x[1,1]\n\nu:low=%X[0,0]\nu:cap=%t[0,0,"^[A-Z]"]\nu:end=%m[0,0,"..$"]\nB\n'
    found = Templates.parse(text)(SENTENCE)
    assert list(found[0]) == ["U00:_B-1", "U01:The/NN", "u:low=the", "u:cap=true", "u:end=he"]
    assert list(found[2]) == ["U00:B-52", "U01:rose/_B+1", "u:low=rose", "u:cap=false", "u:end=se"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "no line that starts with U"),
        ("U00:%x[0,0]\nB01:%x[0,0]", "line 2.*combines observations with transitions"),
        ("X00:%x[0,0]", "starts neither with U nor with B"),
        ("U00:%x[0]", "a % that is not a macro"),
        ("U00:%t[0,0]", "must be %x"),
        ('U00:%m[0,0,"("]', "bad regular expression"),
    ],
)
def test_bad_templates(text, match):
    with pytest.raises(bf.InputError, match=match):
        Templates.parse(text)


def test_a_column_that_is_not_there():
    with pytest.raises(bf.InputError, match="column 2; tokens have 2"):
        Templates.parse("U:%x[0,2]")(SENTENCE)


def test_hashed():
    positions = [{"a": 1.0, "w": "the"}, {"b": 2.5}, {}]
    x = hashed(positions, 64)
    assert x.shape == (3, 64) and x.sum(axis=1).tolist() == [[2.0], [2.5], [0.0]]
    np.testing.assert_array_equal(x.toarray(), hashed([["a", "w=the"], {"b": 2.5}, []], 64).toarray())
    assert hashed([{"a": 1.0, "b": 2.0}], 1).toarray().tolist() == [[3.0]]
    X = [hashed(window_features(SENTENCE), 2**12)] * 2
    crf = bf.ChainCRF(unary="observed_linear").fit(X, [["D", "N", "V"]] * 2)
    assert crf.predict(X)[0].tolist() == ["D", "N", "V"]
    for wrong in (0, 2**31, 1.5):
        with pytest.raises(bf.InputError, match="n_features"):
            hashed(positions, wrong)
