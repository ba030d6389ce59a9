"""Packed folders: the same examples back, damage named, half-written folders refused and gone on with, memory bounded."""

import errno
import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import backfield as bf
from backfield.data.packed import Shards
from backfield.data.packed.reader import identity_of


def images(n=9, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(4 + k % 3, 5, 2)).astype(np.float32) for k in range(n)]
    return X, [(x[:, :, 0] > 0).astype(np.int64) - (x[:, :, 1] > 1.5) for x in X]


def with_edges(X):
    return [bf.GridSample(x, np.abs(np.diff(x, axis=1)), np.abs(np.diff(x, axis=0))) for x in X]


@pytest.fixture
def packed(tmp_path):
    X, Y = images()
    return X, Y, bf.write_shards(tmp_path / "packed", X, Y, shard_bytes=800)


def test_everything_that_estimators_take_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    grid = bf.Graph.grid(2, 3, labels=2)
    ragged = bf.Graph(labels=[2, 3, 2], factors=[(0, 1), (0, 1, 2)])
    cases = {
        "edges": (with_edges(images(3)[0]), images(3)[1]),
        "csr": (
            [csr_matrix(np.eye(3)), csr_matrix(rng.normal(size=(2, 3)))],
            [np.array(["a", "b", ""]), np.array(["b", "a"])],
        ),
        "dicts": ([[{"a": 1.0}, {"b": 2, "ü": 0.5}], [{"a": 1.0}]], [[0, 1], [1]]),
        "float64": ([rng.normal(size=(3, 2)), rng.normal(size=(1, 2))], [np.array([0, 1, -1]), np.array([1])]),
        "masks": ([rng.normal(size=(2, 2))], [np.array([[True, False], [True, True]])]),
        "graphs": (
            [
                bf.Sample(grid, rng.normal(size=(6, 2)), rng.normal(size=(7, 1)), factor_types=np.array([0] * 4 + [1] * 3)),
                bf.Sample(ragged, csr_matrix(np.eye(3)), observed=np.array([-1, 1, -1])),
            ],
            [np.zeros(6, int), np.array([0, 2, 1])],
        ),
    }
    for name, (X, Y) in cases.items():
        shards = bf.open_shards(bf.write_shards(tmp_path / name, X, Y, shard_bytes=1).folder)
        assert len(shards) == len(shards.X) == len(shards.y) == len(X)
        for mine, theirs in zip(shards.X, X, strict=True):
            _same(mine, theirs)
        for mine, theirs in zip(shards.y, Y, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def _same(a, b):
    if isinstance(b, bf.Sample | bf.GridSample):
        for key, value in vars(b).items():
            _same(getattr(a, key), value)
    elif isinstance(b, bf.Graph):
        assert a.shape == b.shape
        for mine, theirs in zip(a.layout, b.layout, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    elif hasattr(b, "tocsr"):
        assert (a != b).nnz == 0
    elif isinstance(b, list) or b is None:
        assert a == b
    else:
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_a_folder_is_fitted_as_its_list(packed):
    X, Y, shards = packed
    assert len(shards.shards) > 2
    options = {"learner": "lbfgs(max_iter=5)"}
    expected = bf.GridCRF(**options).fit(X, Y)
    for data in (shards, shards.folder, str(shards.folder)):
        crf = bf.GridCRF(**options).fit(data)
        assert crf.weights_.tobytes() == expected.weights_.tobytes()
    assert crf.score(shards.folder) == expected.score(X, Y)
    np.testing.assert_array_equal(crf.predict(shards)[3], expected.predict(X)[3])
    assert len(shards.X[2:5]) == 3
    assert pickle.loads(pickle.dumps(shards)) is shards  # one reader per folder and process


def test_processes_write_the_same_bytes(tmp_path):
    X, Y = images()
    one = bf.write_shards(tmp_path / "one", X, Y, shard_bytes=800)
    two = bf.write_shards(tmp_path / "two", X, Y, shard_bytes=800, n_jobs=2)
    assert one.shards == two.shards


def test_a_damaged_shard_is_named_and_not_learned_from(packed):
    _, _, shards = packed
    file = shards.folder / shards.shards[1].file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(bf.InputError, match=r"shard-00001.safetensors is damaged: its checksum .* nothing is learned"):
        bf.GridCRF().fit(Shards(shards.folder, json.loads((shards.folder / "index.json").read_text())))
    file.write_bytes(content[:-3])
    with pytest.raises(bf.InputError, match=r"shard-00001.safetensors is damaged: its size"):
        Shards(shards.folder, json.loads((shards.folder / "index.json").read_text())).X[3]
    file.unlink()
    with pytest.raises(bf.InputError, match=r"shard-00001.safetensors cannot be read: No such file"):
        Shards(shards.folder, json.loads((shards.folder / "index.json").read_text())).X[3]


def test_a_full_disk_leaves_finished_shards_and_the_pack_goes_on(tmp_path, monkeypatch):
    X, Y = images()
    written = []
    real = os.fsync

    def full(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return
        written.append(handle)
        if len(written) == 4:  # the plan, two shards, and then
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    folder = tmp_path / "packed"
    with pytest.raises(OSError, match="No space left on device; finished shards are kept") as caught:
        bf.write_shards(folder, X, Y, source="images", shard_bytes=800)
    assert caught.value.errno == errno.ENOSPC and "shard-00002" in caught.value.filename
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json"] + [f"shard-0000{k}.safetensors" for k in range(2)]
    with pytest.raises(bf.InputError, match=r"is half written: 2 of \d shards exist; run the same"):
        bf.GridCRF().fit(folder)
    monkeypatch.undo()
    made = []
    bf.write_shards(folder, _Seen(X, made), Y, source="images", shard_bytes=800)
    assert 0 in made and 2 not in made and 8 in made  # the first for its size, then only what was not there
    with pytest.raises(bf.InputError, match="is a pack of other data"):
        bf.write_shards(folder, X, None, shard_bytes=800)


class _Seen:
    def __init__(self, values, seen):
        self.values, self.seen = values, seen

    def __len__(self):
        return len(self.values)

    def __getitem__(self, k):
        self.seen.append(k)
        return self.values[k]


def test_bad_folders(tmp_path):
    with pytest.raises(bf.InputError, match="there is no folder"):
        bf.open_shards(tmp_path / "nowhere")
    with pytest.raises(bf.InputError, match="is not a packed folder"):
        bf.open_shards(tmp_path)
    (tmp_path / "index.json").write_text('{"format": "other"}')
    with pytest.raises(bf.InputError, match="is not the index of a packed folder"):
        bf.open_shards(tmp_path)
    with pytest.raises(bf.InputError, match="not empty and not a packed folder"):
        bf.write_shards(tmp_path, *images())
    X, Y = images()
    X[4][0, 0, 0] = np.inf
    with pytest.raises(bf.InputError, match="example 4: features hold NaN or infinity"):
        bf.write_shards(tmp_path / "inf", X, Y)
    unlabelled = bf.write_shards(tmp_path / "unlabelled", images()[0])
    with pytest.raises(bf.InputError, match="fit needs labels"):
        bf.GridCRF().fit(unlabelled)


CAPPED = """
import resource, sys
sys.modules["pandas"] = None  # scikit-learn imports it where it is; its address space is none of ours
import numpy as np
import backfield as bf

cap = int(sys.argv[2])
rng = np.random.default_rng(0)
X = [rng.normal(size=(20, 30, 5)).astype(np.float32) for _ in range(3)]
options = dict(learner="lbfgs(max_iter=1)", inference="tree_reweighted(n_iter=2)", start="zero")
bf.GridCRF(**options).fit(X, [(x[:, :, 0] > 0).astype(int) for x in X])  # load the kernels
resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
shards = bf.open_shards(sys.argv[1])
crf = bf.GridCRF(**options).fit(shards)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(shards.total_bytes, int(status["VmHWM"].split()[0]) * 1024, crf.trace_[-1]["iteration"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits on address space and /proc are Linux's")
def test_a_folder_four_times_larger_than_the_memory_cap(tmp_path):
    """The data are 4 times the whole address space that the process may use (ulimit -v), libraries included."""
    cap, folder = 2**20 * 640, tmp_path / "packed"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 100, 400)).astype(np.float32)  # 16 MB each
    bf.write_shards(folder, [x], [(x[:, :, 0] > 0).astype(int)], shard_bytes=1)
    _multiply(folder, -(-4 * cap // (folder / "shard-00000.safetensors").stat().st_size))
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CAPPED, str(folder), str(cap)]
    root = Path(bf.__file__).parent.parent
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    total, peak, iterations = (int(word) for word in done.stdout.split())
    assert total >= 4 * cap and peak < cap and iterations >= 1


def _multiply(folder, times):
    """Make a folder of one shard one of many, which share the bytes on disk but are files and checksums of their own."""
    index = json.loads((folder / "index.json").read_text())
    shard = folder / "shard-00000.safetensors"
    for k in range(1, times):
        os.link(shard, folder / f"shard-{k:05d}.safetensors")
    _, _, _, size, digest = index["shards"][0]
    index["shards"] = [[f"shard-{k:05d}.safetensors", k, 1, size, digest] for k in range(times)]
    index["names"] = [str(k) for k in range(times)]
    index["identity"] = identity_of(index, json.loads((folder / "plan.json").read_text())["recipe"])
    (folder / "index.json").write_text(json.dumps(index))
