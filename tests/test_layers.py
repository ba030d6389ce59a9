"""A room imports only rooms below it, and siblings in one layer never import each other."""

import ast
from pathlib import Path

import pytest

import backfield

ROOT = Path(backfield.__file__).parent
#: Rooms (and files of the top folder) from the ground up.
LAYERS = [
    ["errors", "file_kinds"],
    ["atomic", "deprecation", "limits", "indices", "drawing", "constraints", "lazy_names", "late_imports"],
    ["scikit_learn"],
    ["plugins"],
    ["kernels", "registry"],
    ["graph"],
    ["features"],
    ["oracles", "map_solvers", "losses", "datasets"],
    ["energies", "inference", "data"],
    ["gradients", "decoders", "structures", "metrics"],  # decoders may sample from the posterior
    ["objectives"],
    ["training"],
    ["learners"],
    ["api"],  # the functions people call first, which estimators stand on
    ["estimators", "bridges"],
    ["report", "compat", "plot", "labelling"],
    ["models"],
    ["testing"],
    ["cli"],
    ["__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
#: Imports that the rule forbids, and why they are right all the same: (file, room) -> reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path.name != "__main__.py")


def room_of(path):
    return path.parts[0].removesuffix(".py")


def imported(path):
    """Return (line, module) for every import of this package, also inside functions."""
    found = []
    for node in ast.walk(ast.parse((ROOT / path).read_text(), filename=str(path))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; write the full name."
            module = node.module or ""
            if module == "backfield":
                # ``from backfield import inference`` names a room, ``from backfield import Graph`` the front door.
                found += [(node.lineno, f"backfield.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
        elif isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
    # Anybody may ask for the version.
    return [(line, m) for line, m in found if m.split(".")[0] == "backfield" and m != "backfield.__version__"]


def room_imported(module):
    """Return the room of a module; the front door ``backfield`` itself holds rooms up to the estimators."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "estimators"


def violations(path):
    room = room_of(path)
    out = []
    for line, module in imported(path):
        other = room_imported(module)
        allowed = other == room or LEVEL[other] < LEVEL[room]
        if not allowed and (path.as_posix(), other) not in EXCEPTIONS:
            out.append(f"backfield/{path}:{line} ({room}, layer {LEVEL[room]}) imports {module} (layer {LEVEL[other]})")
    return out


def test_every_room_has_a_layer():
    rooms = {room_of(path) for path in FILES} - {"__init__"}
    assert rooms <= set(LEVEL), f"give a layer in tests/test_layers.py to {sorted(rooms - set(LEVEL))}"


@pytest.mark.parametrize("room", sorted({room_of(path) for path in FILES} - {"__init__"}))
def test_a_room_imports_only_rooms_below(room):
    if room not in LEVEL:
        pytest.skip("no layer: see above")
    found = [text for path in FILES if room_of(path) == room for text in violations(path)]
    assert not found, "\n".join(found)


def test_exceptions_are_still_needed():
    for (path, room), reason in EXCEPTIONS.items():
        assert reason
        assert any(room_imported(module) == room for _, module in imported(Path(path))), f"{path} imports no {room}"


def test_the_check_sees_a_violation(monkeypatch):
    monkeypatch.setitem(LEVEL, "graph", 99)
    assert violations(Path("api.py"))
