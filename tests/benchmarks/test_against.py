"""Old beside new: who is measured when, medians of ratios, and where the old version comes from."""

from pathlib import Path

import pytest

from backfield import InputError
from backfield_benchmarks import against
from backfield_benchmarks.command import _print_ratios
from tests.installed import run

ROOT = Path(__file__).parents[2]


class Stub:
    """A worker whose figures are given."""

    def __init__(self, name, figures, calls):
        self.name, self.figures, self.calls = name, iter(figures), calls

    def measure(self, number):
        self.calls.append(self.name)
        row = next(self.figures)
        return row if isinstance(row, dict) else {"ns": row, "unit": "message"}


def test_median_of_the_ratios_of_pairs_that_take_turns():
    calls = []
    old = Stub("old", [99, 1.0, 2.0, 4.0], calls)
    new = Stub("new", [1, 1.0, 3.0, 4.8], calls)
    row = against._pairs([old, new], 0, pairs=3, times=1)
    assert row["pairs"] == pytest.approx([1.0, 1.5, 1.2])
    assert (row["old"], row["new"], row["unit"]) == (2.0, 3.0, "ns / message")
    assert row["ratio"] == pytest.approx(1.2)
    assert [set(calls[k : k + 2]) for k in range(0, 8, 2)] == [{"old", "new"}] * 4
    assert calls[2] != calls[4] != calls[6]


def test_a_row_above_the_bar_is_measured_again_by_the_best_of_several():
    more = [9.0, 5.0, 1.0, 7.0, 3.0]
    old = Stub("old", [99, 1.0] + [99, *more], [])
    new = Stub("new", [1, 1.3] + [1, *(1.02 * each for each in more)], [])
    row = against._compared([old, new], 0, pairs=1)
    assert row["first_ratio"] == pytest.approx(1.3)
    assert row["ratio"] == pytest.approx(1.02) and row["old"] == 1.0


def test_a_row_that_fails_is_named():
    row = against._compared([Stub("old", [1.0], []), Stub("new", [{"error": "KeyError: 'x'"}], [])], 0, pairs=3)
    assert row == {"error": "new: KeyError: 'x'"}


def test_what_is_compared():
    assert against.figure({"ns": 3.0, "compile_s": 9.0}) == 3.0
    assert against.figure({"peak_MB": 7.0}) == 7.0
    assert against.figure({"processor_s": 3.0}) == 3.0


def test_rows_above_the_bar_are_marked(capsys):
    row = {"case": "labels", "workload": "60x80", "algorithm": "loopy_bp", "family": "log", "dtype": "float32", "labels": 2}
    figures = {"old": 1.0, "new": 1.0, "unit": "ns / message", "bar": 1.05}
    _print_ratios([{**row, **figures, "ratio": 1.06}, {**row, **figures, "ratio": 1.04}, {**row, "error": "new: broken"}])
    out = capsys.readouterr().out
    assert out.count("SLOWER") == 1 and "new: broken" in out and "2 of 3 rows" in out


def test_two_processes_measure_this_tree():
    rows = against.run(["labels"], str(ROOT), 1, quick=True)
    row = next(rows)
    rows.close()
    assert row["case"] == "labels" and row["labels"] == 2
    assert row["ratio"] == row["pairs"][0] > 0 and row["old"] > 0


def test_where_the_old_version_comes_from(tmp_path):
    with against._tree(str(ROOT), ROOT) as tree:
        assert tree == ROOT
    if (ROOT / ".git").exists():
        with against._tree("HEAD", ROOT) as tree:
            assert (tree / "backfield" / "__init__.py").is_file() and tree != ROOT
    with pytest.raises(InputError, match="holds no backfield"), against._tree(str(tmp_path), ROOT):
        pass
    with pytest.raises(InputError, match="neither a folder nor a tag"), against._tree("no-such-tag", ROOT):
        pass


def test_bad_usage(capsys):
    assert run(["bench", "--against", "x", "--reference", "y"]) == 2
    assert run(["bench", "nonsense", "--against", str(ROOT)]) == 2
    assert "give one of them" in (err := capsys.readouterr().err) and "no case" in err
