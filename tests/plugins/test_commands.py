"""``--plugin``, and commands of installed packages."""

import os
import sys

import pytest

from backfield import plugins
from backfield.cli.app import COMMANDS, run
from backfield.cli.plugged import HELP

COMMAND = '''
from typing import Annotated

import typer

def greet(name: str, loud: Annotated[bool, typer.Option(help="Shout.")] = False) -> None:
    """Greet somebody by name."""
    typer.echo(f"HELLO {name}" if loud else f"hello {name}")
'''


@pytest.fixture
def call(capsys):
    def call(*arguments):
        code = run([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return call


def one_line(err, *words):
    assert err.startswith("backfield: ") and err.count("\n") == 1 and "Traceback" not in err, err
    assert all(word in err for word in words), err


def test_a_part_from_a_file(call, loss_file, monkeypatch):
    code, out, err = call("list", "losses")
    assert code == 0 and "nothing_lost" not in out
    code, out, err = call("--plugin", loss_file, "list", "losses")
    assert (code, err) == (0, "") and "nothing_lost" in out and "Zero, whatever the labels." in out
    assert plugins.ENVIRONMENT not in os.environ  # named for the command's worker processes only
    monkeypatch.chdir(loss_file.parent)
    code, out, err = call("--plugin", "zero.py", "gradcheck", "--loss", "nothing_lost", "--inference", "exact")
    assert (code, err) == (0, "") and "pass" in out


def test_worker_processes_are_told(loss_file, monkeypatch, capsys):
    seen = []
    monkeypatch.setitem(COMMANDS, "look", lambda: seen.append(os.environ[plugins.ENVIRONMENT]))
    monkeypatch.setenv(plugins.ENVIRONMENT, "toy_first")
    monkeypatch.chdir(loss_file.parent)
    assert run(["--plugin", "zero.py", "look"]) == 0
    assert seen == [f"toy_first{os.pathsep}{loss_file}"] and os.environ[plugins.ENVIRONMENT] == "toy_first"


def test_a_broken_plugin_is_one_line_and_two(call, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    code, out, err = call("--plugin", tmp_path / "broken.py", "list")
    assert (code, out) == (2, "")
    one_line(err, "broken.py cannot be imported", "ZeroDivisionError")
    code, out, err = call("--plugin", "toy_nowhere", "list")
    assert (code, out) == (2, "")
    one_line(err, "toy_nowhere")


def test_lists_of_values_after_a_plugin(call, loss_file):
    """``compare --learning A B`` is spread out, whatever stands before the command."""
    code, _, err = call("--plugin", loss_file, "compare", "no.npz", "--learning", "mse", "l1", "--inference", "exact")
    assert code == 2
    one_line(err, "no.npz")


def test_help_reads_no_parameters_and_the_entry_points_once(call, monkeypatch):
    def later(value: "NoSuchType") -> None:  # noqa: F821
        """Say that parameters are read when a command is called."""

    asked, find = [], plugins.entry_points
    monkeypatch.setattr(plugins, "entry_points", lambda group: asked.append(group) or find(group))
    monkeypatch.setitem(COMMANDS, "later", later)
    code, out, err = call("--help")
    assert (code, err) == (0, "") and "Say that parameters are read when a command is called." in out
    assert asked == [plugins.COMMANDS]
    code, _, err = call("later", "1")
    assert code == 1
    one_line(err, "NoSuchType")


def test_a_plugged_in_command(call, install):
    install("toy", {"toy_command": COMMAND}, {plugins.COMMANDS: {"greet": "toy_command:greet"}})
    code, out, err = call("--help")
    assert code == 0 and "greet" in out and "Of the package toy." in out
    assert "toy_command" not in sys.modules  # help imports nothing
    assert call("list", "decoders")[0] == 0 and "toy_command" not in sys.modules
    assert call("greet", "you", "--loud") == (0, "HELLO you\n", "")
    code, out, _ = call("greet", "--help")
    assert code == 0 and "Shout." in out and "Greet somebody by name." in out
    code, _, err = call("greet")
    assert code == 2
    one_line(err, "name", "backfield greet --help")


def test_a_built_in_command_is_not_replaced(call, install):
    install("toy", {"toy_command": COMMAND}, {plugins.COMMANDS: {"list": "toy_command:greet"}})
    assert "max_marginal" in call("list", "decoders")[1]
    assert call("--help")[1].count(" list ") == 1


@pytest.mark.parametrize("text", ["1 / 0", "from backfield import nothing_there", "def other(): pass"])
def test_a_broken_command_is_one_line_and_two(call, install, text):
    install("toy", {"toy_command": text}, {plugins.COMMANDS: {"greet": "toy_command:greet"}})
    assert call("--help")[0] == 0
    code, _, err = call("greet", "you")
    assert code == 2
    one_line(err, "the command greet of the installed package toy")


def test_an_optional_command_is_plugged_in(call, install):
    install("toy", {"toy_command": COMMAND}, {plugins.COMMANDS: {"reproduce": "toy_command:greet"}})
    assert HELP["reproduce"][:30] in call("--help")[1]
    assert call("reproduce", "me") == (0, "hello me\n", "")
