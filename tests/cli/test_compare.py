"""``backfield compare``: the table of learning x inference."""

import json

import numpy as np
import pytest

import backfield as bf
from backfield.cli.compare import spread
from backfield.datasets.generated import shapes
from backfield.estimators.coupling import coupling_table
from tests.cli.test_cli import one_line

SENTENCES = "the DT B-NP\ncat NN I-NP\nsat VBD O\n\na DT B-NP\ndog NN I-NP\nran VBD O\n\n" * 4


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    data = shapes(n_train=4, n_test=1, size=16)
    path = tmp_path_factory.mktemp("data") / "shapes.npz"
    np.savez(path, images=np.stack(data.train), masks=np.stack(data.train_masks))
    return path


QUICK = ["--unary", "plus_minus", "--pairwise", "plus_minus", "--learner", "ascent(max_iter=8)", "--l2", "0"]


def test_spread():
    arguments = [
        "compare",
        "data",
        "--learning",
        "a",
        "b",
        "--json",
        "--inference",
        "c",
        "d",
        "--l2",
        "1",
        "--learning",
        "e",
    ]
    several = [
        "--learning",
        "a",
        "--learning",
        "b",
        "--json",
        "--inference",
        "c",
        "--inference",
        "d",
        "--l2",
        "1",
        "--learning",
        "e",
    ]
    assert spread(arguments) == ["compare", "data", *several]
    assert spread(["fit", "--learning", "a", "b"]) == ["fit", "--learning", "a", "b"]


def test_the_table(call, images, tmp_path):
    rows = ["pseudo_marginal", "saddle_point(solver='graph_cut(truncate=True)')", "pseudolikelihood @ exact"]
    columns = ["graph_cut(truncate=True)", "loopy_bp(n_iter=10)", "icm", "max_marginal"]
    code, out, err = call("compare", images, "--learning", *rows, "--inference", *columns, *QUICK, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "seconds to learn" in out and "seconds to infer" in out and out.count("*") >= 4
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [(c["learning"], c["inference"]) for c in found["cells"]] == [(r, c) for r in rows for c in columns]
    assert all(0 <= cell["error"] < 0.4 for cell in found["cells"])
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "pseudolikelihood" in page and "<b>" in page
    assert (tmp_path / "out" / "compare.png").read_bytes()[:4] == b"\x89PNG"


def test_json_and_column_files(call, tmp_path):
    (tmp_path / "tags.txt").write_text(SENTENCES)
    code, out, err = call(
        "compare", tmp_path / "tags.txt", "--learning", "surrogate_likelihood", "univariate_logistic",
        "--inference", "chain", "viterbi", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    cells = json.loads(out)["cells"]
    assert len(cells) == 4 and all(cell["error"] == 0 for cell in cells)


def test_a_cell_that_cannot_be_is_left_out_and_explained():
    rng = np.random.default_rng(0)
    graph = bf.Graph.grid(6, 6, labels=2)
    y = (np.indices((6, 6)).sum(0) % 2).ravel()
    X = [bf.Sample(graph, (y - 0.5 + rng.normal(size=36))[:, None]) for _ in range(3)]
    crf = bf.GraphCRF(learner="lbfgs(max_iter=20)")
    cells = coupling_table(crf, ["pseudolikelihood"], ["graph_cut", "loopy_bp"], (X, [y] * 3), (X, [y] * 3))
    assert cells[0].error is None and "submodular" in cells[0].reason
    assert cells[1].error is not None and not hasattr(crf, "weights_")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--learning", "nonsense", "--inference", "loopy_bp"], "there is no 'nonsense'"),
        (["--learning", "pseudo_marginal", "--inference", "loopy"], "there is no 'loopy'"),
        (["--learning", "pseudo_marginal", "--inference", "loopy_bp(n_iter=-1)"], "n_iter"),
        (["--learning", "pseudo_marginal", "--inference", "icm(init='x')"], "init"),
        (["--learning", "pseudo_marginal", "--inference", "loopy_bp", "--learner", "lbfgs"], "needs an objective"),
        (["--learning", "univariate_logistic @ gibbs", "--inference", "loopy_bp"], "gibbs"),
        (["--learning", "pseudo_marginal", "--inference", "loopy_bp", "--held-out", "2"], "share"),
        (["--learning", "pseudo_marginal", "--inference", "loopy_bp", "--test", "nowhere"], "nowhere"),
        (["--learning", "pseudo_marginal"], "inference"),
        (["--learning", "pseudo_marginal", "--inference", "soft"], "probabilities"),
    ],
)
def test_bad_input(call, images, arguments, words):
    code, out, err = call("compare", images, *arguments)
    assert (code, out) == (2, "")
    one_line(err, words)


def test_one_example_cannot_be_split(call, tmp_path):
    np.savez(tmp_path / "one.npz", images=np.zeros((1, 4, 4, 1), np.float32), masks=np.eye(4, dtype=np.int64)[None])
    code, _, err = call("compare", tmp_path / "one.npz", "--learning", "pseudo_marginal", "--inference", "loopy_bp")
    assert code == 2
    one_line(err, "--test")
