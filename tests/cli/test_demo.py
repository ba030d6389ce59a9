import json

import backfield as bf
from backfield.cli.app import run


def test_demo(tmp_path, capsys):
    assert run(["demo", "--out", str(tmp_path / "d"), "--images", "3", "--size", "48"]) == 0
    out, err = capsys.readouterr()
    assert "univariate logistic" in out and "fewer" in out and "Traceback" not in err
    scores = json.loads((tmp_path / "d" / "results.json").read_text())
    independent, likelihood, *logistic = scores.values()
    for each in logistic:
        assert each["error"] < 0.6 * independent["error"]
        assert each["expected_calibration_error"] < likelihood["expected_calibration_error"]
    assert (tmp_path / "d" / "demo.png").stat().st_size > 1000
    assert len(list((tmp_path / "d" / "pictures").glob("*.png"))) == 3 * (2 + len(scores))
    assert "surrogate likelihood" in (tmp_path / "d" / "report.html").read_text()
    assert bf.load(tmp_path / "d" / "univariate_logistic_5_it.bf").inference == "tree_reweighted(n_iter=5)"
