"""Every method of the campaign ``methods`` with a few odd arguments: an answer, or one sentence."""

import os
import sys
import warnings

import pytest

pytest.importorskip("PIL")
if not sys.platform.startswith("linux"):
    pytest.skip("campaigns run on Linux", allow_module_level=True)

import backfield as bf
from fuzz.calls import ODD
from fuzz.methods import ARRAYS, Methods

VALUES = [*ODD, *ARRAYS]
#: Each call sees every so many values, and the next call those after them.
EVERY = 9


@pytest.fixture(scope="module")
def methods(tmp_path_factory):
    made = Methods()
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("methods"))  # some values are good names of files
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.prepare(None)
        yield made
    os.chdir(before)


def refusal(call, value):
    try:
        call(value)
    except bf.InputError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("room", ["estimators", "models", "pydensecrf", "crfsuite"])
def test_an_answer_or_one_sentence(methods, room):
    calls = methods.rooms()[room]
    for number, call in enumerate(calls):
        for value in VALUES[number % EVERY :: EVERY]:
            assert "\n" not in refusal(call, value), (number, value)
