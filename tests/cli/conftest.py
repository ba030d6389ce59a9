"""What the tests of the command line share."""

import pytest

from backfield.cli.app import run


@pytest.fixture
def call(capsys):
    """Return a function that runs ``backfield`` and returns its exit code, output and errors."""

    def call(*arguments):
        code = run([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call
