"""``backfield gradcheck``: right gradients pass, wrong ones give exit code 1, nonsense exit code 2."""

import json

import pytest

from backfield.cli.app import run
from backfield.cli.gradcheck import plan


def test_one_combination(capsys):
    setting = ["--inference", "tree_reweighted(n_iter=3)", "--loss", "univariate_logistic", "--gradient", "truncated"]
    assert run(["gradcheck", *setting]) == 0
    out = capsys.readouterr().out
    assert "tree_reweighted(n_iter=3)" in out
    assert "pass" in out
    assert "1 combinations, none failed" in out


def test_json_and_what_is_left_out(capsys):
    assert run(["gradcheck", "--inference", "exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert set(found["left_out"]) == {"pseudo_marginal", "maximum_marginal"}
    assert {"univariate_logistic", "surrogate_likelihood"} <= {row["loss"] for row in found["rows"]}
    assert all(row["error"] <= row["tolerance"] for row in found["rows"])


def test_the_matrix_has_everything():
    from backfield.registry import names

    combinations, left_out = plan(None, None, None)
    assert {c.loss for c in combinations} | set(left_out) == set(names("losses") + names("objectives"))
    assert {c.gradient for c in combinations} == {None, "direct", *names("gradients")}
    used = {c.inference.split("(")[0] for c in combinations if c.inference}
    assert used == {"brute_force", "chain", "exact", "loopy_bp", "mean_field", "smoothed_lp", "tree_reweighted"}


def test_a_wrong_gradient_fails(capsys):
    """Implicit differentiation after one sweep: said in a warning, and found by the differences."""
    setting = ["--inference", "tree_reweighted(n_iter=1)", "--loss", "mse", "--gradient", "implicit"]
    assert run(["gradcheck", *setting]) == 1
    captured = capsys.readouterr()
    assert "FAIL" in captured.out
    assert captured.err.count("holds at convergence") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "pseudo_marginal"], "a direction without an objective"),
        (["--inference", "gibbs"], "no gradient through gibbs"),
        (["--loss", "mse", "--inference", "loopy_bp", "--gradient", "direct"], "needs 'truncated'"),
        (["--loss", "f_measure", "--inference", "chain"], "f_measure is for binary variables"),
        (["--loss", "nothing"], "there is no 'nothing'"),
    ],
)
def test_nonsense(arguments, message, capsys):
    assert run(["gradcheck", *arguments]) == 2
    assert message in capsys.readouterr().err
