"""Fragments of the changelog have names that towncrier reads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"(\d+|\+[\w-]+)\.(added|changed|fixed|removed)(\.\d+)?\.md")


def fragments():
    return [path for path in sorted((ROOT / "changes").iterdir()) if path.name != "README.md"]


def test_names():
    wrong = [path.name for path in fragments() if not NAME.fullmatch(path.name)]
    assert not wrong, f"{wrong}: changes/README.md says how fragments are named"


def test_towncrier_reads_them_all():
    pytest.importorskip("towncrier")
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "next", "--date", "today"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for path in fragments():
        assert " ".join(path.read_text().split()) in shown, path.name
