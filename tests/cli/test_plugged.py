"""Commands of other distributions: present, absent, broken."""

from importlib.metadata import EntryPoint

import pytest

from backfield import plugins
from backfield.cli.app import COMMANDS


@pytest.fixture
def install(monkeypatch):
    """Return a function that makes entry points (name=value) the only ones installed."""

    def install(**points):
        found = [EntryPoint(name, value, plugins.COMMANDS) for name, value in points.items()]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found if group == plugins.COMMANDS else [])

    return install


def greet(name: str, loud: bool = False) -> None:
    """Greet somebody."""
    print(f"hello {name}{'!' if loud else ''}")


@pytest.mark.parametrize(("command", "folder"), [("reproduce", "papers"), ("bench", "benchmarks")])
def test_a_command_that_is_not_installed_says_how_to_get_it(install, call, command, folder):
    install()
    for arguments in ([], ["d13-fig1", "--quick"], ["--json", "file", "-o", "x"]):
        code, out, err = call(command, *arguments)
        assert (code, out) == (2, "")
        assert err == (
            f"backfield: '{command}' is a command of backfield-{folder}, which is not installed; in a clone of the "
            f"repository: pip install -e {folder}.\n"
        )
    code, out, _ = call("--help")
    assert code == 0 and all(name in out for name in [*COMMANDS, command])


def test_a_package_brings_a_command(install, call):
    install(greet=f"{__name__}:greet")
    assert call("greet", "you", "--loud") == (0, "hello you!\n", "")
    assert "Greet somebody" in call("greet", "--help")[1]
    assert "greet" in call("--help")[1]


def test_a_broken_package_breaks_its_own_command_only(install, call):
    install(greet="no_such_module:greet")
    code, out, err = call("greet", "you")
    assert (code, out) == (2, "")
    assert (
        err.startswith(
            "backfield: the command greet of the installed package no_such_module cannot be imported: ModuleNotFoundError"
        )
        and err.count("\n") == 1
    )
    assert call("list", "losses")[0] == 0
