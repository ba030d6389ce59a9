import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from backfield.metrics import Tally
from backfield.report import Example, ModelResult, Picture, Row, TaggedSentence, calibration, evaluate, write_report
from backfield.report.gallery import chosen, confusions_of, layers
from backfield.report.pictures import (
    encode_png,
    error_picture,
    input_picture,
    label_picture,
    marginal_picture,
    montage,
    reduced,
    uncertainty_picture,
)
from backfield.report.plots import Line, calibration_chart, confusion_chart, line_chart, log_ticks, ticks

VOID = {"meta", "img"}


class Outside(HTMLParser):
    """Collects what a page would load, and checks that its tags are closed."""

    def __init__(self):
        super().__init__()
        self.loaded, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.loaded += [value for key, value in attributes if key in ("src", "href") and not value.startswith("data:")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def result(name, seed, classes=(0, 1, 2)):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, len(classes), 500)
    p = rng.dirichlet(np.ones(len(classes)), 500)
    names = np.asarray(classes)
    metrics = evaluate([names[truth]], [names[p.argmax(axis=1)]], names, [p])
    trace = [{"iteration": k, "objective": 2.0**-k, "error": float("nan"), "validation": 0.5} for k in range(5)]
    return ModelResult(name, metrics, trace, {"inference": "tree_reweighted(n_iter=5)"}, {"fit": 1.0, "predict": 0.1})


def test_a_report_is_one_file_that_loads_nothing(tmp_path):
    pictures = [Picture("in<put>", np.zeros((4, 5, 3), np.uint8)), Picture("truth", np.ones((4, 5, 3), np.uint8))]
    rows = [Example("a", [0.1, 0.2], {(0, 1): 2}, pictures)]
    sentences = [TaggedSentence(["a", "<b>"], ["O", "B-X"], ["O", "O"], [0.9, 0.5])]
    write_report(tmp_path / "r.html", "A & B", ["About."], [result("one", 0), result("two", 1)], rows, sentences, {"x": 1})
    text = (tmp_path / "r.html").read_text()
    page = Outside()
    page.feed(text)
    assert page.loaded == [] and page.open == []
    assert "url(" not in text and "@import" not in text and "{{" not in text
    for word in ("Results", "Pictures", "Learning curves", "Calibration", "Confusion", "Settings and timings", "A &amp; B"):
        assert word in text
    assert "in&lt;put&gt;" in text and "&lt;b&gt;" in text and "<b>b" not in text
    assert len(re.findall("<svg", text)) == 2 + 2 + 2  # objectives, calibrations, confusions; no error to show


def test_the_worst_come_first(tmp_path):
    pictures = [Picture("input", np.zeros((4, 5, 3), np.uint8))]
    examples = [
        Example("good", [0.01], {(0, 1): 1}, pictures),
        Example("bad", [0.97], {(1, 0): 9}, pictures),
        Example("hidden", [float("nan")], {}, pictures),
    ]
    write_report(tmp_path / "r.html", "t", [], [result("one", 0)], examples)
    text = (tmp_path / "r.html").read_text()
    places = [re.search(f"<h3>{name}<", text).start() for name in ("bad", "good", "hidden")]
    assert places == sorted(places)
    rows = re.findall(r'<tr data-example="(\d)"', text)
    assert rows == ["1", "0", "2"]
    assert '{"0,1":[0],"1,0":[1]}' in text
    assert "1 predicted as 0" in text


def test_examples_with_pictures():
    examples = [Example(str(k), [k / 100], {(0, 1): 1}) for k in range(40)]
    examples[3] = Example("3", [0.03], {(0, 1): 1, (2, 1): 50})
    assert chosen(examples) == [*range(39, 27, -1), 3]  # the worst, and the one with a confusion of its own
    truth, guess = np.array([[0, 1], [-1, 2]]), np.array([[0, 2], [1, 2]])
    assert confusions_of(truth, guess) == {(1, 2): 1}
    errors = error_picture(truth, guess)
    assert (errors[0, 1] != errors[0, 0]).any() and (errors[1, 0] == 200).all()
    flat, certain = np.full((2, 2, 3), 1 / 3), np.eye(3)[truth]
    assert (uncertainty_picture(flat) != uncertainty_picture(certain)).any(axis=-1).all()
    names = [picture.caption for picture in layers(np.zeros((2, 2, 3), np.uint8), truth, {"": (guess, flat)}, [0, 1, 2])]
    assert names == ["input", "truth", "prediction", "errors", "confidence", "uncertainty"]
    assert max(reduced(np.zeros((1000, 700, 3), np.uint8)).shape) <= 360


def test_bands_are_over_examples():
    rng = np.random.default_rng(0)
    tally = Tally([0, 1])
    for right in (1, 0, 1, 1):  # within an example, all variables are right or all are wrong
        truth = rng.integers(0, 2, 50)
        p = np.where(np.arange(2) == truth[:, None], 0.7, 0.3)
        tally.add(truth if right else 1 - truth, truth, p)
    found = tally.metrics().calibration
    used = found.share > 0
    assert found.accuracy[used] == pytest.approx([0.75])
    assert found.spread[used] == pytest.approx([np.sqrt(0.75 * 0.25 / 4)])  # four examples, not 200 variables


def test_sections_without_content_are_left_out(tmp_path):
    only = result("one", 0)
    bare = ModelResult("one", evaluate([np.array([0, 1])], [np.array([0, 1])], [0, 1]))
    for each in (only, bare):
        write_report(tmp_path / "r.html", "t", [], [each])
        text = (tmp_path / "r.html").read_text()
        assert "Pictures" not in text and "Sentences" not in text
    assert "Calibration" not in text and "Learning curves" not in text


@pytest.mark.parametrize("n", [2, 8, 20])
def test_charts_are_well_formed(n):
    rng = np.random.default_rng(n)
    charts = [
        line_chart([Line("a", [0, 1, 2], [3.0, float("nan"), 0.1]), Line("b", [0], [1.0], 1, True)], "x", "y", "t"),
        line_chart([Line("flat", [0, 1], [1.0, 1.0])], "x", "y", "t"),
        line_chart([Line("below", [0, 1], [-1.0, 5.0])], "x", "y", "t"),
        calibration_chart(calibration(rng.dirichlet(np.ones(n), 99), rng.integers(0, n, 99)), 1, "t"),
        confusion_chart(rng.integers(0, 9, (n, n)), [f"<{k}>" for k in range(n)], "t"),
    ]
    for chart in charts:
        tree = ElementTree.fromstring(chart)
        numbers = [v for e in tree.iter() for k, v in e.attrib.items() if k in ("x", "y", "cx", "cy", "points")]
        assert numbers and not any("nan" in v or "inf" in v for v in numbers)
    assert line_chart([Line("none", [0], [float("nan")])], "x", "y", "t") == ""


def test_ticks_are_round_and_inside():
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0.671, 0.694, 5) == [0.675, 0.68, 0.685, 0.69]
    assert log_ticks(0.08, 0.9) == pytest.approx([0.1, 0.2, 0.5])
    assert log_ticks(1, 1e5) == pytest.approx([1, 10, 100, 1000, 10**4, 10**5])


def test_pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)
    certain = np.eye(2)[np.array([[0, 1], [1, 0]])]
    np.testing.assert_array_equal(marginal_picture(certain), label_picture(np.array([[0, 1], [1, 0]])))
    assert marginal_picture(np.full((2, 3, 5), 0.2)).shape == (2, 3, 3)
    assert (label_picture(np.array([[-1, 25]]))[0, 0] == 200).all()
    np.testing.assert_array_equal(input_picture(pixels), pixels)
    assert input_picture(np.random.default_rng(0).normal(size=(4, 4, 6))).max() == 255
    whole = montage([Row("a", [Picture("x", pixels), Picture("y", pixels)])] * 2, scale=3)
    assert whole.shape[1] == 2 * (15 + 12) + 12 and (whole == 255).any()
