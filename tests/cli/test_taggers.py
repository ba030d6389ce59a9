"""Taggers on the command line: files of sentences, templates, the table of conlleval."""

import json

import numpy as np
import pytest

import backfield as bf
from backfield.metrics.conlleval import conlleval, span_calibration
from backfield.metrics.tally import evaluate


@pytest.fixture
def run(call):
    """Return a function that runs ``backfield`` and returns its output, or its errors where another code is expected."""

    def run(*arguments, code=0):
        found, out, err = call(*arguments)
        assert found == code, err
        return err if code else out

    return run


WORDS = ["the", "cat", "saw", "a", "dog", "and", "Rex", "barked"]
TAGS = ["O", "O", "O", "O", "O", "O", "B-PER", "O"]
POS = ["DET", "NOUN", "VERB", "DET", "NOUN", "CCONJ", "PROPN", "VERB"]


def columns(count=12):
    lines = [f"{w} {p} {t}" for w, p, t in zip(WORDS, POS, TAGS, strict=True)]
    return "-DOCSTART- -X- O\n\n" + "\n\n".join("\n".join(lines[: 4 + k % 5]) for k in range(count)) + "\n"


def jsonl(count=12):
    return "\n".join(json.dumps({"tokens": WORDS[: 4 + k % 5], "labels": [*TAGS[: 3 + k % 5], None]}) for k in range(count))


def conllu(count=12):
    blocks = []
    for k in range(count):
        rows = [f"{t + 1}\t{w}\t_\t{p}\t" + "\t".join("_" * 6) for t, (w, p) in enumerate(zip(WORDS, POS, strict=True))]
        blocks.append("\n".join(["# text", "1-2\tthecat" + "\t_" * 8, *rows[: 4 + k % 5], "4.1\tx" + "\t_" * 8]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize(("name", "make"), [("a.txt", columns), ("a.jsonl", jsonl), ("a.conllu", conllu)])
def test_fit_evaluate_and_predict(run, tmp_path, name, make):
    data, model, out = tmp_path / name, tmp_path / "m.bf", tmp_path / f"out{name}"
    data.write_text(make())
    more = ["--features", "words"] if name == "a.jsonl" else []
    run("fit", str(data), "--quiet", "-o", str(model), *more)
    found = json.loads(run("evaluate", str(model), str(data), "--json"))
    assert found["accuracy"] > 0.95
    run("predict", str(model), str(data), "-o", str(out), "--proba")
    text = out.read_text()
    if name == "a.conllu":
        assert "Prob=" in text and text.count("1-2\tthecat") == 12 and "\nDET" not in text
        assert text.splitlines()[2].split("\t")[3] == "DET"
    elif name == "a.jsonl":
        row = json.loads(text.splitlines()[0])
        assert len(row["predicted"]) == len(row["probabilities"]) == 4
    else:
        assert text.split("\n")[0].split()[:4] == ["the", "DET", "O", "O"]
    if name != "a.conllu":
        assert found["chunks"]["types"]["PER"]["recall"] == 1.0 and "expected_calibration_error" in found["spans"]


def test_template_and_options_of_sequences(run, tmp_path):
    data, model, template = tmp_path / "a.txt", tmp_path / "m.bf", tmp_path / "template"
    data.write_text(columns())
    template.write_text("U00:%x[0,0]\nU01:%x[-1,1]/%x[0,1]\nB\n")
    run("fit", str(data), "--quiet", "-o", str(model), "--template", str(template), "--constraints", "BIO", "--order", "2",
        "--min-count", "2", "--l1", "0.0001")  # fmt: skip
    crf = bf.load(model)
    assert "U00:the" in crf.feature_names_ and crf.structure_.order == 2 and crf.l1 == 0.0001
    table = run("evaluate", str(model), str(data))
    assert "processed 69 tokens with 4 phrases; found: " in table and "PER: precision: " in table


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.jsonl", '{"tokens": ["a"], "labels": []}', "1 tokens and 0 labels"),
        ("a.jsonl", "[1]", "must be an object"),
        ("a.jsonl", '{"tokens": ["a"', "is not JSON"),
        ("a.jsonl", '{"words": [1], "tags": ["O"]}', "a token is a string"),
        ("a.jsonl", '{"tags": ["O"]}', "needs a list 'tokens'"),
        ("a.conllu", "1\ta\tb", "3 columns, 10"),
        ("a.conllu", "x\ta\tb", "the number of the word"),
    ],
)
def test_bad_files(run, tmp_path, name, text, match):
    (tmp_path / name).write_text(text)
    found = run("fit", str(tmp_path / name), "--quiet", "-o", str(tmp_path / "m.bf"), code=2)
    assert match in " ".join(found.split())


def test_options_of_sequences_are_refused_for_images(run, tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4, 1)), masks=np.zeros((2, 4, 4), int))
    for option in (["--order", "2"], ["--constraints", "BIO"]):
        run("fit", str(tmp_path / "a.npz"), "--quiet", "-o", str(tmp_path / "m.bf"), *option, code=2)


def test_the_table_of_conlleval():
    """Counted by the rules of conlleval; its script was not run."""
    truth = [["B-NP", "I-NP", "O", "B-VP", "B-NP"], ["B-PP", "B-NP", "I-NP"]]
    guess = [["B-NP", "I-NP", "O", "B-VP", "I-NP"], ["B-PP", "B-NP", "O"]]
    lines = conlleval(evaluate(truth, guess, sorted({tag for tags in truth for tag in tags}))).splitlines()
    assert lines[0] == "processed 8 tokens with 5 phrases; found: 5 phrases; correct: 4."
    assert lines[1] == "accuracy:  75.00%; precision:  80.00%; recall:  80.00%; FB1:  80.00"
    assert [line.strip() for line in lines[2:]] == [
        "NP: precision:  66.67%; recall:  66.67%; FB1:  66.67  3",
        "PP: precision: 100.00%; recall: 100.00%; FB1: 100.00  1",
        "VP: precision: 100.00%; recall: 100.00%; FB1: 100.00  1",
    ]


def test_calibration_of_spans():
    truth = [["B-P", "I-P", "O", "B-P"], ["", "B-P"]]
    spans = [[(0, 2, "P", 0.9), (3, 4, "P", 0.7), (2, 3, "P", 0.2)], [(0, 1, "P", 0.5), (1, 2, "Q", 0.3)]]
    found = span_calibration(truth, spans, n_bins=10)
    assert found.share[[9, 7, 2, 3]].tolist() == [0.25] * 4
    np.testing.assert_allclose(found.error, (0.1 + 0.3 + 0.2 + 0.3) / 4)
