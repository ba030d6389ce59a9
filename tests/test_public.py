"""What is public is listed, typed, and goes away in one way."""

import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

import backfield as bf
from backfield.deprecation import deprecated

ROOT = Path(__file__).parent.parent


def test_the_page_lists_every_public_name():
    text = (ROOT / "docs" / "stability.md").read_text()
    listed = set(re.findall(r"`bf\.(\w+)`", text))
    assert listed == set(bf.__all__) | {"metrics", "plot"}


def test_deprecated_names_work_and_say_what_to_use():
    @deprecated(since="0.2", until="0.4", instead="twice(x)")
    def double(x):
        """Return 2 x."""
        return 2 * x

    with pytest.warns(
        FutureWarning, match=r"double is deprecated since 0\.2 and will be removed in 0\.4; use twice\(x\)\."
    ) as seen:
        assert double(3) == 6
    assert seen[0].filename == __file__
    assert double.__doc__ == "Return 2 x."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double.__wrapped__(3)


def test_lowest_versions_are_the_declared_ones():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = dict(name.split(">=") for name in project["dependencies"] + extras["vision"] + extras["plots"])
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    lowest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {name: _numbers(version) for name, version in declared.items()} == {
        name: _numbers(version) for name, version in lowest.items()
    }


def _numbers(version):
    parts = [int(part) for part in version.split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def _git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_versions_come_from_tags(tmp_path):
    sys.path.insert(0, str(ROOT))
    try:
        from hatch_version import FALLBACK, version
    finally:
        sys.path.remove(str(ROOT))
    try:
        _git(tmp_path, "init", "--quiet")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "one")
    assert version(tmp_path) == FALLBACK
    _git(tmp_path, "tag", "v0.3.1")
    assert version(tmp_path) == "0.3.1"
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "two")
    short = _git(tmp_path, "rev-parse", "--short", "HEAD").strip()
    assert version(tmp_path) == f"0.3.2.dev1+g{short}"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: backfield\nVersion: 0.3.2.dev1+gabc\n")
    assert version(tmp_path) == "0.3.2.dev1+gabc"  # of an sdist, whatever lies around it


def test_models_and_inference_come_without_what_takes_long():
    slow = {"sklearn", "scipy.stats", "scipy.sparse", "pandas"}
    code = f"import sys, backfield as bf; bf.Model, bf.infer; print({slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
