"""What is in the wheel: the library, and no experiment and no benchmark; and what an index page shows of it."""

import email
import os
import re
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


def test_sdist_and_wheel_install_into_an_empty_environment(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("backfield-*.tar.gz")
    wheel(sdist, tmp_path)  # of the sdist, where there is no git
    (built,) = tmp_path.glob("*.whl")
    assert built.name.split("-")[1] == sdist.name.removesuffix(".tar.gz").split("-")[1]
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = str(home / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(built)]
    subprocess.run(install, check=True, capture_output=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # Dependencies of this environment, and nothing that is installed from a folder.
    (packages / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    code = "import backfield; print(backfield.__file__, backfield.__version__)"
    done = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    where, found = done.stdout.split()
    assert where.startswith(str(packages)) and found == built.name.split("-")[1]
    command = [str(home / "bin" / "backfield"), "list", "losses"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA"))}
    shown = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert shown.returncode == 0 and "clique_logistic" in shown.stdout


def index_page(out):
    """Build the wheel and return its metadata."""
    wheel(ROOT, out)
    (found,) = out.glob("*.whl")
    with zipfile.ZipFile(found) as file:
        (name,) = [name for name in file.namelist() if name.endswith("METADATA")]
        return email.message_from_bytes(file.read(name))


def test_links_work_on_an_index_page(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/body")
    page = index_page(tmp_path)
    assert "Source, https://example.org/some/body" in page.get_all("Project-URL")
    links = re.findall(r"\]\(([^)]+)\)", page.get_payload())
    home = re.compile(r"https://example\.org/some/body/(?:blob|raw)/HEAD/")
    files = [home.sub("", link) for link in links if home.match(link)]
    assert len(files) == len(links) > 20 and all((ROOT / file).exists() for file in files)
    margin = [url.split(", ")[1] for url in page.get_all("Project-URL")]
    assert all((ROOT / home.sub("", url)).exists() for url in margin if home.match(url))


@pytest.mark.parametrize(("remote", "home"), [
    ("https://host.org/some/body.git", "https://host.org/some/body"),
    ("https://me:secret@host.org/some/body", "https://host.org/some/body"),
    ("git@host.org:some/body.git", "https://host.org/some/body"),
    ("ssh://git@host.org/some/body.git", "https://host.org/some/body"),
    ("/srv/git/body", ""),
    (None, ""),
])  # fmt: skip
def test_the_address_is_that_of_the_remote(tmp_path, monkeypatch, remote, home):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.syspath_prepend(str(ROOT))
    from hatch_build import address

    try:
        subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if remote is not None:
        subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", remote], check=True)
    assert address(tmp_path) == home


@pytest.mark.parametrize(("folder", "command"), [("papers", "reproduce"), ("benchmarks", "bench")])
def test_the_packages_beside_it_bring_a_command(tmp_path, folder, command):
    names, points = wheel(ROOT / folder, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in names} == {f"backfield_{folder}"}
    assert "[backfield.commands]" in points and f"{command} = backfield_{folder}." in points
