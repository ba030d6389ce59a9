"""Plugins are loaded into a copy of the registry, and gone after each test."""

import copy
import sys

import pytest

from backfield import plugins, registry

LOSS = '''
from dataclasses import dataclass

from backfield.losses.base import Loss

COUNT = globals().get("COUNT", 0) + 1

class Engine:
    """Something of the plugin that is no part."""

@dataclass(frozen=True, repr=False)
class Nothing(Loss, name="nothing_lost"):
    """Zero, whatever the labels."""

    scale: float = 1.0

    def value_and_dmu(self, mu, labeling, weights):
        return 0.0, mu.like(0 * mu.vector())
'''


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    registry.rooms()  # imports all of them
    monkeypatch.setattr(registry, "_REGISTRY", copy.deepcopy(registry._REGISTRY))
    monkeypatch.setattr(plugins, "_LOADED", set())
    monkeypatch.setattr(plugins, "_FILES", {})
    monkeypatch.delenv(plugins.ENVIRONMENT, raising=False)
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if name.split(".")[0].startswith("toy") or name.startswith("backfield.plugins."):
            del sys.modules[name]


@pytest.fixture
def loss_file(tmp_path):
    path = tmp_path / "zero.py"
    path.write_text(LOSS)
    return path


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that makes modules and entry points visible, as an installed package would."""

    def install(name, modules, points):
        site = tmp_path / f"site-{name}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items()) for group, found in points.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(groups))
        monkeypatch.syspath_prepend(str(site))
        return site

    return install
