"""The code of the tutorials runs, in order, in an empty folder, and prints what the text blocks after it say."""

import re
import shlex
from pathlib import Path

import pytest

from backfield.cli.app import run

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
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


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": path.stem}
    n = 0
    for language, content, expected in blocks(path.read_text()):
        capsys.readouterr()
        if language == "sh":
            run_shell(content)
        else:
            exec(compile(content, f"{path.name}, block {n}", "exec"), space)
        out = capsys.readouterr().out
        if expected is not None:
            assert out == expected, f"{path.name}, block {n}, printed:\n{out}"
        n += 1
    assert n >= 3


def test_there_are_tutorials():
    wanted = {"image_folder", "tagger", "superpixels", "partial_labels", "trees_as_energies"}
    assert {path.stem for path in TUTORIALS} >= wanted
