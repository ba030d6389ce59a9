"""``backfield label`` as a command: the address, Ctrl-C, and what it refuses."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from backfield.cli.app import run

pytest.importorskip("starlette", reason="needs the extra label")
pytest.importorskip("uvicorn", reason="needs the extra label")


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C goes to the whole console there")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_it_and_it_says_where_the_work_is(folder, name):
    command = [sys.executable, "-m", "backfield", "label", str(folder), "--no-browser", "--labels", "ground, disc"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
    assert url, line
    with urllib.request.urlopen(url[0]) as answer:
        assert b"backfield" in answer.read()
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and str(folder / "masks") in out and "Traceback" not in err, (out, err)


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["{}", "--model", "nowhere.bf"], ["{}", "--labels", "one"], ["{}", "--port", "99999"]]
)
def test_bad_arguments_are_one_line(folder, arguments, capsys):
    assert run(["label", *(each.format(folder) for each in arguments), "--no-browser"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("backfield: ")


def test_a_folder_that_was_refused_is_free_again(folder):
    assert run(["label", str(folder), "--labels", "one", "--no-browser"]) == 2
    from backfield.labelling import Session

    Session(folder).close()
