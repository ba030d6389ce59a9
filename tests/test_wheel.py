"""What is in the wheel: the library, and no experiment and no benchmark."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytest.importorskip("hatchling")


def wheel(folder, out):
    """Build a wheel and return the names of its files and its entry points."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(out), str(folder)], check=True, capture_output=True)
    (found,) = out.glob("*.whl")
    with zipfile.ZipFile(found) as file:
        points = [file.read(name).decode() for name in file.namelist() if name.endswith("entry_points.txt")]
        return file.namelist(), "".join(points)


def test_the_wheel_holds_no_experiment(tmp_path):
    names, _ = wheel(ROOT, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"backfield"}
    assert "backfield/cli/app.py" in names and "backfield/report/page.html" in names
    words = ("experiments", "papers", "bench", "d13", "l13", "s18", "k05", "s11")
    assert not [name for name in names if any(word in name for word in words)]


@pytest.mark.parametrize(("folder", "command"), [("papers", "reproduce"), ("benchmarks", "bench")])
def test_the_packages_beside_it_bring_a_command(tmp_path, folder, command):
    names, points = wheel(ROOT / folder, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in names} == {f"backfield_{folder}"}
    assert "[backfield.commands]" in points and f"{command} = backfield_{folder}." in points
