"""Columns of many names at once."""

import pickle

import numpy as np

from backfield.features.columns import Columns, number_names


def test_numbers_names_in_the_order_of_first_use_and_finds_them():
    rng = np.random.default_rng(0)
    batches = [[f"name {k}" for k in rng.integers(0, 3000, size)] for size in (0, 1, 700, 5000, 20_000)]
    columns = number_names(batches)
    flat = [name for batch in batches for name in batch]
    assert list(columns) == list(dict.fromkeys(flat)) and list(columns.values()) == list(range(len(columns)))
    asked = [*flat, "", "not there", "name 3000"]
    found = columns.find(iter(asked), len(asked))
    assert found.tolist() == [columns.get(name, -1) for name in asked]
    again = pickle.loads(pickle.dumps(columns))
    assert type(again) is Columns and again == columns and again._table is None


def test_counts_names():
    batches = [["a", "b", "a"], ["c", "b"], ["d", "a"]]
    assert number_names(batches, 2) == {"a": 0, "b": 1}
    assert number_names([], 2) == {} and number_names([]).find(["x"], 1).tolist() == [-1]


def test_columns_need_not_be_in_order():
    columns = Columns({"a": 7, "b": 2, "": 0})
    assert columns.find(["", "b", "c", "a"], 4).tolist() == [0, 2, -1, 7]
