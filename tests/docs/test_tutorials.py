"""The code of the pages runs, in order, in an empty folder, and prints what the text blocks after it say."""

import copy
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from backfield import registry as parts

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
#: XGBoost's page is run, with a stand-in for the library, in tests/oracles.
OTHERS = [path for path in sorted(DOCS.glob("**/*.md")) if path not in TUTORIALS and path.stem != "add_an_oracle"]
_spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)


@pytest.fixture
def registry(monkeypatch):
    """Parts that a page adds are gone after it; those of the library are there before it."""
    parts.rooms()  # imports all of them
    monkeypatch.setattr(parts, "_REGISTRY", copy.deepcopy(parts._REGISTRY))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("path", [*TUTORIALS, *OTHERS], ids=lambda path: path.relative_to(DOCS).with_suffix("").as_posix())
def test_page(path, tmp_path, monkeypatch, capsys):
    text = path.read_text()
    for extra in ("torch", "zarr", "nibabel"):
        if f"import {extra}" in text:
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def check(number, expected):
        out = capsys.readouterr().out
        if expected is not None:
            assert out == expected, f"{path.name}, block {number}, printed:\n{out}"

    capsys.readouterr()
    n = pages.run(path, check)
    assert n >= 3 or path not in TUTORIALS
    for name in pages.pictures(text):
        assert (tmp_path / name).is_file(), f"{path.name} shows {name}, which its code does not draw"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_tutorial_shows_a_picture_that_is_there(path):
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", path.read_text())
    assert shown
    for name in shown:
        assert (path.parent / name).is_file(), name


def test_there_are_tutorials():
    wanted = {"image_folder", "tagger", "superpixels", "partial_labels", "trees_as_energies", "cnn_and_crf"}
    assert {path.stem for path in TUTORIALS} >= wanted
