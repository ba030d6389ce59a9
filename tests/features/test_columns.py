"""Columns of many names at once, and the loops over dicts that read them."""

import pickle
import sys

import numpy as np

from backfield.features import columns as module
from backfield.features.columns import Columns
from backfield.kernels.python_objects import hashes, read_dicts


def number_names(batches, min_count=1):
    return module.number_names(((hashes(batch), batch.copy) for batch in batches), min_count)


def test_numbers_names_in_the_order_of_first_use_and_finds_them():
    rng = np.random.default_rng(0)
    batches = [[f"name {k}" for k in rng.integers(0, 3000, size)] for size in (0, 1, 700, 5000, 20_000)]
    columns = number_names(batches)
    flat = [name for batch in batches for name in batch]
    assert list(columns) == list(dict.fromkeys(flat)) and list(columns.values()) == list(range(len(columns)))
    asked = [*flat, "", "not there", "name 3000"]
    found = columns.find(hashes(asked))
    assert found.tolist() == [columns.get(name, -1) for name in asked]
    again = pickle.loads(pickle.dumps(columns))
    assert type(again) is Columns and again == columns and again._table is None


def test_counts_names():
    batches = [["a", "b", "a"], ["c", "b"], ["d", "a"]]
    assert number_names(batches, 2) == {"a": 0, "b": 1}
    assert number_names([], 2) == {} and number_names([]).find(hashes(["x"])).tolist() == [-1]


def test_columns_need_not_be_in_order():
    columns = Columns({"a": 7, "b": 2, "": 0})
    assert columns.find(hashes(["", "b", "c", "a"])).tolist() == [0, 2, -1, 7]


def test_dicts_are_read_as_python_reads_them():
    value, text = 10**6 + 0.5, "x" * 50
    dicts = [{"a": value, "b": text, "c": -1.0}, {}, {"b": text, "d": True, "e": 2**60, "f": np.float32(0.5)}]
    read_dicts(dicts, 7, ":")  # compiles
    counts = [sys.getrefcount(each) for each in (value, text, "b", float, str, dicts[0])]
    for _ in range(50):
        found, values = read_dicts(dicts, 7, ":")
    assert [sys.getrefcount(each) for each in (value, text, "b", float, str, dicts[0])] == counts
    assert found.tolist() == [hash(name) for name in ("a", f"b:{text}", "c", f"b:{text}", "d", "e", "f")]
    assert values.tolist() == [value, 1.0, -1.0, 1.0, 1.0, 2.0**60, 0.5]


def test_what_is_neither_a_number_nor_a_text_is_left_to_others():
    for entry in ({"a": 10**400}, {1: "x"}, {"a": [1]}, {"a": None}, {"a": 1 + 0j}):
        assert read_dicts([{"b": 1.0}, entry], 2, ":") is None
    assert hash("no exception is left behind") and read_dicts([{"a": -1}], 1, ":")[1].tolist() == [-1.0]
