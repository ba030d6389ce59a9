"""The code of the pages runs, in order, in an empty folder, and prints what the text blocks after it say."""

import copy
import importlib
import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from backfield import registry as parts
from backfield.cli.app import run

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
#: XGBoost's page is run, with a stand-in for the library, in tests/oracles.
OTHERS = [path for path in sorted(DOCS.glob("**/*.md")) if path not in TUTORIALS and path.stem != "add_an_oracle"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text):
    """Return (language, content, expected output or None) for each block that is run."""
    found = BLOCK.findall(text)
    for k, (language, content) in enumerate(found):
        if language in ("python", "sh"):
            after = found[k + 1] if k + 1 < len(found) else ("", "")
            yield language, content, after[1] if after[0] == "text" else None


def run_shell(content):
    for line in content.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "backfield", f"only backfield is run here: {line}"
            assert run(words[1:]) == 0, line


@pytest.fixture
def registry(monkeypatch):
    """Parts that a page adds are gone after it; those of the library are there before it."""
    for room in ("decoders", "estimators", "learners", "oracles"):
        importlib.import_module(f"backfield.{room}")
    monkeypatch.setattr(parts, "_REGISTRY", copy.deepcopy(parts._REGISTRY))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("path", [*TUTORIALS, *OTHERS], ids=lambda path: path.relative_to(DOCS).with_suffix("").as_posix())
def test_page(path, tmp_path, monkeypatch, capsys):
    text = path.read_text()
    for extra in ("torch", "zarr", "nibabel"):
        if f"import {extra}" in text:
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    page = types.ModuleType(path.stem)
    monkeypatch.setitem(sys.modules, path.stem, page)  # where pickle looks for the classes of the page
    space = vars(page)
    n = 0
    for language, content, expected in blocks(text):
        capsys.readouterr()
        if language == "sh":
            run_shell(content)
        else:
            exec(compile(content, f"{path.name}, block {n}", "exec"), space)
        out = capsys.readouterr().out
        if expected is not None:
            assert out == expected, f"{path.name}, block {n}, printed:\n{out}"
        n += 1
    assert n >= 3 or path not in TUTORIALS


def test_there_are_tutorials():
    wanted = {"image_folder", "tagger", "superpixels", "partial_labels", "trees_as_energies", "cnn_and_crf"}
    assert {path.stem for path in TUTORIALS} >= wanted
