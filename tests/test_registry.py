"""Spec strings and the registry."""

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backfield as bf
from backfield import registry
from backfield.inference import Exact, Inference, LoopyBP, TreeReweighted
from backfield.map_solvers import Icm
from backfield.registry import Component, get, lookup, names, parse


class Part(Component):
    room: ClassVar[str] = "test_room"


@dataclass(frozen=True, repr=False)
class Thing(Part, name="thing"):
    a: Any = 1
    b: Any = None


@pytest.fixture(autouse=True, scope="module")
def _forget_the_test_room():
    yield
    del registry._REGISTRY["test_room"]


def test_registry():
    assert names("test_room") == ["thing"] and lookup("test_room", "thing") is Thing
    assert {"brute_force", "exact", "chain", "mean_field", "loopy_bp", "tree_reweighted", "gibbs"} <= set(names("inference"))
    assert names("nowhere") == []
    assert "Part" not in names("test_room")  # without a name a class is no part


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("thing", Thing()),
        ("thing()", Thing()),
        (" thing ( 2 ) ", Thing(2)),
        ("thing(2, 'x')", Thing(2, "x")),
        ("thing(b=[1, 2.5], a=-1e-3)", Thing(-1e-3, [1, 2.5])),
        ("thing(a=True, b=None)", Thing(True)),
        ("thing(a=(1, 2), b={'k': 1})", Thing((1, 2), {"k": 1})),
        ("thing(a=1_000,)", Thing(1000)),
        ("thing(\n    a=3,\n)", Thing(3)),
    ],
)
def test_reading_a_spec(spec, expected):
    assert get("test_room", spec) == expected


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(Thing()) == "thing" and repr(Thing(2)) == "thing(a=2)" and repr(Thing(b="x")) == "thing(b='x')"
    assert repr(Thing(1.0)) == "thing(a=1.0)"  # 1.0 is not 1
    assert repr(Thing(True)) == "thing(a=True)"
    assert repr(Thing(np.float64(0.5), np.array([1, 2]))) == "thing(a=0.5, b=[1, 2])"
    assert repr(TreeReweighted(n_iter=20, rho=0.5)) == "tree_reweighted(n_iter=20, rho=0.5)"


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a=literals, b=literals)
def test_repr_is_a_spec(a, b):
    part = Thing(a, b)
    back = get("test_room", repr(part))
    assert back == part and repr(back) == repr(part)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=40) | st.text(alphabet="thing(a=1,[])'\"{}*. \n", max_size=25).map("thing".__add__))
def test_any_text_is_a_part_or_an_input_error(text):
    with contextlib.suppress(bf.InputError):
        assert isinstance(get("test_room", text), Thing)


def test_parse():
    assert parse("f(1, b=[2])") == ("f", [1], {"b": [2]})
    assert parse("f") == ("f", [], {})


def test_get_takes_parts_and_classes():
    part = Exact(memory=1000)
    assert get("inference", part) is part
    assert get("inference", Exact) == Exact()


def test_replace():
    assert LoopyBP().replace(n_iter=3) == LoopyBP(n_iter=3)
    with pytest.raises(bf.InputError, match=r"no parameter 'n_iters'.*n_iter"):
        LoopyBP().replace(n_iters=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        LoopyBP().n_iter = 3


BAD = {
    "": "cannot read the spec",
    "thing(": "cannot read the spec",
    "thing)": "cannot read the spec",
    "thing; thing": "cannot read the spec",
    "a.thing()": "cannot read the spec",
    "3": "cannot read the spec",
    "'thing'": "cannot read the spec",
    "thing()()": "cannot read the spec",
    "lambda: 1": "cannot read the spec",
    "thing\0": "cannot read the spec",
    "thing(a=" + "(" * 3000 + ")" * 3000 + ")": "cannot read the spec",
    "thing(a=b)": "arguments are numbers, lists",
    "thing(a=int(3))": "arguments are numbers, lists",
    "thing(a=__import__('os').getcwd())": "arguments are numbers, lists",
    "thing(*[1])": "arguments are numbers, lists",
    "thing(a={[]: 1})": "arguments are numbers, lists",
    "thing(a={{}})": "arguments are numbers, lists",
    "thing(a=1 + 'x')": "arguments are numbers, lists",
    "thing(**{'a': 1})": "no parameter 'None'",
    "thing(c=1)": "no parameter 'c'; it takes a, b",
    "thing(1, 2, 3)": "at most 2 parameters, received 3",
    "thing(1, a=2)": "gives 'a' twice",
    "thing(a=1, b=3, a=2)": "gives 'a' twice",
    "thinf": "no 'thinf' in test_room; did you mean 'thing'",
    "zzzzz": "no 'zzzzz' in test_room; known: thing",
}


@pytest.mark.parametrize("spec", BAD, ids=lambda spec: repr(spec[:30]))
def test_a_bad_spec_is_one_clear_error(spec):
    with pytest.raises(bf.InputError, match=BAD[spec]):
        get("test_room", spec)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, "received NoneType where a part of inference or its spec string is needed"),
        (3, "received int"),
        (b"exact", "received bytes"),
        (Icm(), "received icm, which belongs to map_solvers"),
        (Icm, "received icm, which belongs to map_solvers"),
        (Inference, "received Inference where a part of inference"),
        (int, "received int where"),
    ],
    ids=repr,
)
def test_something_else_for_a_part(part, message):
    with pytest.raises(bf.InputError, match=message):
        get("inference", part)


@pytest.mark.parametrize("room", ["graph", "api", "no_such_room"])
def test_what_is_no_room_has_no_parts(room):
    assert registry.names(room) == [] and not registry.has(room, "grid")
    with pytest.raises(bf.InputError, match=f"there is no 'grid' in {room}"):
        registry.get(room, "grid")
