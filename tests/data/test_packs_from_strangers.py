"""Packed folders that are damaged, forged, or there already: one sentence, or the data that was packed."""

import hashlib
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.data.packed.reader import identity_of
from backfield.errors import InputError

X, Y = [np.eye(3), np.ones((2, 3))], [[0, 1, 1], [1, 0]]


def forge(folder, data):
    """Put another shard in the place of the first, with the checksums that go with it."""
    (folder / "shard-00000.safetensors").write_bytes(data)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0][3:] = [len(data), hashlib.sha256(data).hexdigest()]
    index["identity"] = identity_of(index, json.loads((folder / "plan.json").read_text())["recipe"])
    (folder / "index.json").write_text(json.dumps(index))


def refused(folder, match):
    def read():
        shards = bf.open_shards(folder)
        return list(shards.X), list(shards.y)

    with pytest.raises(InputError, match=match) as caught:
        read()
    assert "\n" not in str(caught.value)


DEEP = json.loads("[" * 500 + "]" * 500)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, None) for key in ("version", "identity", "kind", "labelled", "names", "shards")),
        *((key, DEEP) for key in ("version", "identity", "kind", "labelled", "names", "shards", "preprocessing")),
        ("labelled", False), ("names", ["b", "a"]), ("shards", [["../x", 0, 2, 5, "a"]]), ("shards", []), ("version", 1),
        ("shards", [["shard-00000.safetensors", 0, 10**12, 5, "a"]]), ("preprocessing", {"format": "images"}),
    ],
)  # fmt: skip
def test_a_damaged_index(tmp_path, key, value):
    bf.write_shards(tmp_path / "p", X, Y)
    index = json.loads((tmp_path / "p" / "index.json").read_text())
    (tmp_path / "p" / "index.json").write_text(json.dumps(index | {key: value}))
    refused(tmp_path / "p", "index.json is damaged")


@pytest.mark.parametrize("text", ["[" * 10**5, "3", "{}", '{"recipe": 3}', '{"recipe": "a", "n_shards": 1e300}'])
def test_a_damaged_plan(tmp_path, text):
    bf.write_shards(tmp_path / "p", X, Y)
    (tmp_path / "p" / "plan.json").write_text(text)
    with pytest.raises(InputError, match=r"plan.json is damaged"):
        bf.write_shards(tmp_path / "p", X, Y)
    (tmp_path / "p" / "index.json").unlink()
    refused(tmp_path / "p", "not a packed folder")


def test_a_pack_of_the_first_version_is_read(tmp_path):
    bf.write_shards(tmp_path / "p", X, Y)
    index = json.loads((tmp_path / "p" / "index.json").read_text()) | {"version": 1}
    recipe = json.loads((tmp_path / "p" / "plan.json").read_text())["recipe"]
    old = hashlib.sha256(json.dumps([shard[4] for shard in index["shards"]] + [recipe]).encode()).hexdigest()
    (tmp_path / "p" / "index.json").write_text(json.dumps(index | {"identity": old}))
    assert [each.tolist() for each in bf.open_shards(tmp_path / "p").y] == Y


@pytest.mark.parametrize(
    "field", [{"data_offsets": [0, 2**50]}, {"shape": [2**40]}, {"shape": [-1]}, {"dtype": "X"}, {"shape": 3}]
)
def test_a_forged_header(tmp_path, field):
    bf.write_shards(tmp_path / "p", X, Y)
    data = (tmp_path / "p" / "shard-00000.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header["0.features"] |= field
    text = json.dumps(header).encode()
    forge(tmp_path / "p", struct.pack("<Q", len(text)) + text + data[8 + size :])
    refused(tmp_path / "p", "damaged: its header")


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, struct.pack("<Q", 10**5) + b"[" * 10**5])
def test_a_forged_shard(tmp_path, data):
    bf.write_shards(tmp_path / "p", X, Y)
    forge(tmp_path / "p", data)
    refused(tmp_path / "p", "damaged")


@pytest.mark.parametrize(
    "change",
    [
        {"graph_scope": [0, 2**40]}, {"graph_scope": [0, 0]}, {"graph_scope": [0, -1]}, {"graph_scope_ptr": [0, 2**40]},
        {"graph_scope_ptr": [0, 1]}, {"graph_labels": [2, -3]}, {"node_features.indices": [0, 2**30]},
        {"node_features.indptr": [0, 2**30, 2]}, {"node_features.shape": [2, 1]},
    ],
)  # fmt: skip
def test_forged_graphs(tmp_path, change):
    sample = bf.Sample(bf.Graph([2, 2], [(0, 1)]), csr_matrix(np.eye(2)))
    bf.write_shards(tmp_path / "p", [sample], [[0, 1]])
    tensors = {
        key: np.array(a) for key, a in parse_tensors((tmp_path / "p" / "shard-00000.safetensors").read_bytes()).items()
    }
    tensors |= {f"0.{key}": np.array(value) for key, value in change.items()}
    forge(tmp_path / "p", format_tensors(tensors))
    refused(tmp_path / "p", "example 0 of")


def test_other_data_of_the_same_names_and_sizes(tmp_path):
    first = bf.write_shards(tmp_path / "p", X, Y, shard_bytes=1)
    assert bf.write_shards(tmp_path / "p", X, Y, shard_bytes=1).identity == first.identity
    with pytest.raises(InputError, match="holds other examples of the same names"):
        bf.write_shards(tmp_path / "p", [2 * x for x in X], Y, shard_bytes=1)
    with pytest.raises(InputError, match="holds other examples of the same names"):
        bf.write_shards(tmp_path / "p", X, [[1, 1, 1], [1, 0]], shard_bytes=1)
