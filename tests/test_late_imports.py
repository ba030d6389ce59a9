"""Imports that wait: stand-ins for modules that nobody asks for, and actions that follow an import."""

import json
import subprocess
import sys

import pytest


def run(code):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return the name of a package on the path that counts its imports."""
    folder = tmp_path / "slow_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import builtins\nbuiltins.slow_count = getattr(builtins, 'slow_count', 0) + 1\nx = 5\n"
    )
    (folder / "inner.py").write_text("y = 6\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "slow_package"


def test_a_postponed_module_is_imported_when_it_is_used(module):
    code = f"""
import builtins, json, sys
from backfield.late_imports import postponed
found = []
with postponed("{module}", "no_such_package"):
    import {module} as early
    found.append(hasattr(builtins, "slow_count"))
found += ["{module}" in sys.modules, early.x, builtins.slow_count]
import {module}
found += [{module}.x, {module} is early, builtins.slow_count]
print(json.dumps(found))
"""
    assert run(code) == [False, False, 5, 1, 5, False, 1]


def test_what_is_taken_from_a_postponed_module_is_the_real_thing(module):
    code = f"""
import json, sys
from backfield.late_imports import postponed
with postponed("{module}"):
    from {module} import x
    import {module}.inner
    kept = {module}
print(json.dumps([x, {module}.inner.y, sys.modules["{module}"] is kept, kept.__file__.endswith("__init__.py")]))
"""
    assert run(code) == [5, 6, True, True]


def test_modules_that_are_there_are_left_alone():
    from backfield.late_imports import postponed

    before = sys.modules["json"]
    with postponed("json"):
        assert sys.modules["json"] is before
    assert sys.modules["json"] is before


def test_an_action_follows_the_import(module):
    code = f"""
import json, sys
from backfield.late_imports import after_import
seen = []
after_import("{module}", lambda: seen.append(sys.modules["{module}"].x))
after_import("{module}.inner", lambda: seen.append("inner"))
before = list(seen)
import {module}.inner
after_import("{module}", lambda: seen.append("now"))
import inspect
print(json.dumps([before, seen, inspect.getsource({module}.inner), [f for f in sys.meta_path if "backfield" in str(f)]]))
"""
    assert run(code) == [[], [5, "inner", "now"], "y = 6\n", []]


def test_estimators_import_neither_pandas_nor_statistics():
    pytest.importorskip("pandas")
    code = """
import json, sys
import backfield as bf
bf.GridCRF, bf.ChainCRF
early = [name for name in ("scipy.stats", "pandas", "sklearn.metrics") if name in sys.modules]
import sklearn.utils.fixes, numpy as np
mode = sklearn.utils.fixes._mode(np.array([1, 2, 2]))  # which uses scipy.stats
from sklearn.metrics import get_scorer
names = type(get_scorer("accuracy")).__name__, type(get_scorer("neg_ece")).__name__
print(json.dumps([early, int(np.ravel(mode[0])[0]), *names]))
"""
    assert run(code) == [[], 2, "RaggedScorer", "RaggedScorer"]


def test_scorers_are_there_where_scikit_learn_came_first():
    code = """
import json
from sklearn.metrics import get_scorer
before = type(get_scorer("accuracy")).__name__
import backfield as bf
bf.GridCRF
print(json.dumps([before, type(get_scorer("accuracy")).__name__]))
"""
    assert run(code) == ["_Scorer", "RaggedScorer"]
