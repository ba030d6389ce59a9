"""Dense fields through the command line: fit, predict, evaluate with a report, compare, and what is refused."""

import json

import numpy as np
import pytest

import backfield as bf
from tests.data.files.test_data import image_folder

SPEC = "dense(kernels=['position(2)', 'bilateral(8, 20)'], learn_scales=False)"
QUICK = ["--inference", "mean_field(n_iter=2)", "--learner", "lbfgs(max_iter=2)", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return image_folder(tmp_path_factory.mktemp("data") / "a", [(0, 1), (1, 0), (1, 255), (0, 1)], shape=(8, 9))


def test_from_fit_to_report(call, folder, tmp_path):
    model, out, page = tmp_path / "m.bf", tmp_path / "out", tmp_path / "page.html"
    code, text, err = call("fit", folder, "--model", SPEC, "-o", model, *QUICK)
    assert (code, err) == (0, "") and "4 images" in text
    crf = bf.load(model)
    assert isinstance(crf, bf.DenseCRF) and len(crf.kernels_) == 2
    assert call("predict", model, folder, "-o", out, "--proba")[0] == 0
    assert np.load(out / "0.npy").shape == (8, 9, 2)
    code, text, _ = call("evaluate", model, folder, "--json", "--report", page)
    assert code == 0 and json.loads(text)["accuracy"] > 0.5
    assert page.read_text().startswith("<!doctype html>")


def test_compare(call, folder):
    code, text, err = call("compare", folder, "--model", SPEC, "--learning", "univariate_logistic", "univariate_quadratic",
                           "--inference", "mean_field(n_iter=1)", "mean_field(n_iter=2)", "--learner", "lbfgs(max_iter=1)",
                           "--json")  # fmt: skip
    assert (code, err) == (0, "") and "univariate_quadratic" in text


def test_bad_specs_are_one_line(call, folder, tmp_path):
    for spec in ("dense(kernels=['position(0)'])", "dense(kernels=[])", "dense(learn_scales='no')", "dense(filter='fast')"):
        code, _, err = call("fit", folder, "--model", spec, "-o", tmp_path / "m.bf", *QUICK)
        assert code == 2 and err.startswith("backfield: ") and err.count("\n") == 1
