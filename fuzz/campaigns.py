"""What is attacked: model files, packs, checkpoints, arrays, models in text formats, images, arguments, command lines."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from backfield.cli.app import run as run_command
from backfield.errors import InputError
from fuzz.mutations import ODD_VALUES, mutate_array, mutate_bytes, mutate_json
from fuzz.runner import WrongAnswer

Case = Callable[[], Any]


def _images(seed: int = 0, count: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    masks = [(rng.random((8, 9)) < 0.5).astype(np.int64) for _ in range(count)]
    return [np.stack([m + rng.normal(0, 0.5, m.shape), rng.normal(size=m.shape)], axis=2) for m in masks], masks


def _sentences() -> tuple[list[list[dict[str, float]]], list[list[str]]]:
    words = [["the", "dog", "runs"], ["a", "cat", "sleeps", "now"], ["dogs", "run"]]
    tags = [["D", "N", "V"], ["D", "N", "V", "A"], ["N", "V"]]
    return [[{f"w={w}": 1.0, "bias": 1.0, f"s={w[-1]}": 0.5} for w in each] for each in words], tags


def _fitted() -> dict[str, tuple[Any, Any]]:
    """Return small fitted models and an input of each."""
    X, y = _images()
    grid = bf.GridCRF(learner="lbfgs(max_iter=5)").fit(X, y)
    sentences, tags = _sentences()
    chain = bf.ChainCRF(unary="observed_linear", learner="lbfgs(max_iter=5)").fit(sentences, tags)
    graph = bf.Graph.from_edges([[0, 1], [1, 2]], labels=2)
    sample = bf.Sample(graph, np.eye(3), np.ones((2, 1)))
    return {"grid": (grid, X), "chain": (chain, sentences), "graph": (bf.GraphCRF().fit([sample], [[0, 1, 1]]), [sample])}


def _same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(np.array_equal(np.asarray(p), np.asarray(q)) for p, q in zip(a, b, strict=True))


@dataclass
class ModelFiles:
    """A ``.bf`` file with mutated bytes, header or tensors: refused, or the predictions of the original."""

    name: str = "model_files"
    models: dict[str, tuple[bytes, Any, Any]] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        for name, (model, X) in _fitted().items():
            path = folder / f"{name}.bf"
            model.save(path)
            self.models[name] = (path.read_bytes(), X, bf.load(path).predict_proba(X))

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        data, X, expected = self.models[str(rng.choice(list(self.models)))]
        mutated = mutate_bytes(rng, data) if rng.random() < 0.5 else _mutated_safetensors(rng, data)
        path = folder / "model.bf"
        path.write_bytes(mutated)

        def check() -> None:
            found = bf.load(path).predict_proba(X)
            if mutated != data and not _same(found, expected):
                raise WrongAnswer("a damaged model file predicts something else")

        return check


def _mutated_safetensors(rng: np.random.Generator, data: bytes) -> bytes:
    """Mutate the header's JSON (also the JSON text inside its metadata) or one tensor, and keep the file well formed."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
    texts = [key for key, value in header.get("__metadata__", {}).items() if value.startswith(("{", "["))]
    if texts and rng.random() < 0.5:
        text = json.loads(header["__metadata__"][texts[0]])
        header["__metadata__"][texts[0]] = json.dumps(mutate_json(rng, text))
    elif rng.random() < 0.4:
        header = mutate_json(rng, header)
    else:
        body = bytearray(mutate_bytes(rng, bytes(body)))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)


@dataclass
class Packs:
    """A packed folder with a mutated index, plan or shard: refused, or the data that was packed."""

    name: str = "packs"
    expected: Any = None
    source: Path = Path()

    def prepare(self, folder: Path) -> None:
        X, y = _images()
        self.source = folder / "pack"
        bf.write_shards(self.source, X, y)
        self.expected = [np.asarray(each) for each in bf.open_shards(self.source).y]

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        pack = folder / "pack"
        shutil.copytree(self.source, pack)
        files = sorted(path for path in pack.iterdir() if path.is_file())
        victim = files[int(rng.integers(len(files)))]
        data = victim.read_bytes()
        if victim.suffix == ".json" and rng.random() < 0.7:
            victim.write_text(json.dumps(mutate_json(rng, json.loads(data))))
        else:
            victim.write_bytes(mutate_bytes(rng, data))

        def check() -> None:
            shards = bf.open_shards(pack)
            found = [np.asarray(each) for each in shards.y]
            for each in shards.X:
                np.asarray(each)
            if not _same(found, self.expected):
                raise WrongAnswer("a damaged pack holds other labels")

        return check


@dataclass
class Checkpoints:
    """A mutated checkpoint: refused on resuming."""

    name: str = "checkpoints"
    data: bytes = b""
    expected: Any = None

    def prepare(self, folder: Path) -> None:
        X, y = _images()
        path = folder / "checkpoint"
        model = bf.GridCRF(learner="lbfgs(max_iter=6)")
        self.expected = model.fit(X, y, checkpoint=path, checkpoint_iterations=2).weights_
        self.data = path.read_bytes()

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        path = folder / "checkpoint"
        mutated = mutate_bytes(rng, self.data) if rng.random() < 0.5 else _mutated_safetensors(rng, self.data)
        path.write_bytes(mutated)

        def check() -> None:
            X, y = _images()
            model = bf.GridCRF(learner="lbfgs(max_iter=6)").fit(X, y, checkpoint=path, resume=True)
            if not np.array_equal(model.weights_, self.expected):
                raise WrongAnswer("a fit resumed from a damaged checkpoint has other weights")

        return check


@dataclass
class Arrays:
    """An ``.npz`` with mutated bytes, odd arrays, object arrays or a bomb, through ``backfield fit``."""

    name: str = "npz"

    def prepare(self, folder: Path) -> None:
        X, y = _images()
        np.savez(folder / "data.npz", images=np.stack(X), masks=np.stack(y))
        _command("fit", folder / "data.npz", "--model", "grid", "-o", folder / "m.bf")
        self.data = (folder / "data.npz").read_bytes()

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        path = folder / "data.npz"
        action = rng.random()
        if action < 0.4:
            path.write_bytes(mutate_bytes(rng, self.data))
        elif action < 0.8:
            X, y = _images(int(rng.integers(100)))
            arrays = {"images": np.stack(X), "masks": np.stack(y)}
            key = str(rng.choice(list(arrays)))
            arrays[key] = mutate_array(rng, arrays[key])
            np.savez(path, **arrays)
        elif action < 0.9:
            images = np.empty(2, dtype=object)
            images[:] = [_nested(rng), {"a": 1}]
            np.savez(path, images=images, masks=np.zeros((2, 8, 9), int))
        else:
            _bomb(path)
        return lambda: _command("fit", path, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")


def _nested(rng: np.random.Generator) -> Any:
    value: Any = 0
    for _ in range(int(rng.integers(1, 30))):
        value = (value, value)
    return value


def _bomb(path: Path) -> None:
    """A small zip file whose array unpacks to 4 GiB of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**29,)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(16):
            file.write(bytes(2**20))


@dataclass
class ModelTexts:
    """UAI, evidence and libDAI files, through ``backfield infer``."""

    name: str = "model_texts"
    sources: dict[str, bytes] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        self.sources = {
            "m.uai": b"MARKOV\n3\n2 3 2\n2\n2 0 1\n3 0 1 2\n6\n1 2 3 .5 .25 1\n12\n1 1 1 1 2 2 2 2 3 3 3 3\n",
            "m.fg": b"2\n\n2\n0 1\n2 2\n4\n0 1\n1 2\n2 .5\n3 1\n\n1\n1\n2\n2\n0 .3\n1 .7\n",
        }
        (folder / "m.uai").write_bytes(self.sources["m.uai"])
        _command("infer", folder / "m.uai", "--inference", "exact", "--json")

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        name = str(rng.choice(list(self.sources)))
        path = folder / name
        path.write_bytes(mutate_bytes(rng, self.sources[name]))
        return lambda: _command("infer", path, "--inference", "tree_reweighted(n_iter=3)", "--json")


@dataclass
class Pictures:
    """PNG files with mutated bytes or huge declared sizes, through ``backfield fit``."""

    name: str = "pictures"
    source: Path = Path()

    def prepare(self, folder: Path) -> None:
        from PIL import Image

        self.source = folder / "data"
        rng = np.random.default_rng(0)
        for kind in ("images", "masks"):
            (self.source / kind).mkdir(parents=True)
        for k in range(2):
            mask = (rng.random((9, 8)) < 0.5).astype(np.uint8)
            Image.fromarray((mask[..., None] * 100 + rng.integers(99, size=(9, 8, 3))).astype(np.uint8)).save(
                self.source / "images" / f"{k}.png"
            )
            Image.fromarray(mask).save(self.source / "masks" / f"{k}.png")
        _command("fit", self.source, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        data = folder / "data"
        shutil.copytree(self.source, data)
        victim = data / str(rng.choice(["images", "masks"])) / "1.png"
        if rng.random() < 0.15:
            victim.write_bytes(_huge_png())
        else:
            victim.write_bytes(mutate_bytes(rng, victim.read_bytes()))
        return lambda: _command("fit", data, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")


def _huge_png() -> bytes:
    """A few bytes that declare 20 000 x 20 000 pixels."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@dataclass
class Arguments:
    """Odd values for the parameters of estimators and functions from Python."""

    name: str = "arguments"

    def prepare(self, folder: Path) -> None:
        _fitted()

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        odd = [*ODD_VALUES, b"x", np.array([1, 2]), np.nan, 2.5, object(), lambda: 1, "linear", "exact", 1j, np.ma.masked]
        value = odd[int(rng.integers(len(odd)))]
        if rng.random() < 0.5:
            return self._estimator(rng, value)
        return self._function(rng, value)

    def _estimator(self, rng: np.random.Generator, value: Any) -> Case:
        X, y = _images()
        model = bf.GridCRF(learner="lbfgs(max_iter=2)")
        target = rng.random()
        if target < 0.6:
            parameter = str(rng.choice(sorted(model.get_params(deep=False))))
            return lambda: model.set_params(**{parameter: value}).fit(X, y).predict(X)
        if target < 0.8:
            key = str(rng.choice(["sample_weight", "checkpoint_seconds", "callbacks", "validation", "n_chunks", "resume"]))
            return lambda: model.fit(X, y, **{key: value})
        bad: list[Any] = [value, [value], [value] * 3, X[:2], [x.T for x in X], [mask.T for mask in y]]
        broken = bad[int(rng.integers(len(bad)))]
        return (lambda: model.fit(broken, y)) if rng.random() < 0.5 else (lambda: model.fit(X, broken))

    def _function(self, rng: np.random.Generator, value: Any) -> Case:
        graph = bf.Graph.grid(3, 4, labels=2)
        theta = bf.Potentials(graph, np.zeros((12, 2)), np.zeros((17, 2, 2)))
        cases: list[Case] = [
            lambda: bf.Graph(value, [(0, 1)]),
            lambda: bf.Graph([2, 2], value),
            lambda: bf.Graph.grid(value, 3),
            lambda: bf.Graph.grid(3, 3, labels=value),
            lambda: bf.Graph.chain(value, 2),
            lambda: bf.Graph.from_edges(value),
            lambda: bf.Potentials(graph, value, np.zeros((17, 2, 2))),
            lambda: bf.Potentials(graph, np.zeros((12, 2)), value),
            lambda: bf.infer(theta, value),
            lambda: bf.infer(theta, "exact", observed=value),
            lambda: bf.infer(theta, "tree_reweighted", dtype=value),
            lambda: bf.find_map(theta, value),
            lambda: bf.value_and_gradient(theta, value, loss="univariate_logistic", inference="exact"),
            lambda: bf.value_and_gradient(theta, [0] * 12, loss=value, inference="exact"),
            lambda: bf.value_and_gradient(theta, [0] * 12, loss="univariate_logistic", inference="exact", weights=value),
            lambda: bf.Sample(graph, value),
            lambda: bf.load(value),
        ]
        return cases[int(rng.integers(len(cases)))]


@dataclass
class CommandLines:
    """Random command lines: exit code 0, 1 or 2, never a traceback."""

    name: str = "command_lines"

    def prepare(self, folder: Path) -> None:
        X, y = _images()
        self.data = folder / "data.npz"
        self.model = folder / "m.bf"
        np.savez(self.data, images=np.stack(X), masks=np.stack(y))
        _command("fit", self.data, "--model", "grid", "-o", self.model)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        words = ["fit", "predict", "evaluate", "infer", "list", "gradcheck", "compare", "pack", "--model", "grid", "chain",
                 "-o", "--json", "--inference", "--loss", "--learner", "--l2", "--seed", "--plugin", "--help", "exact",
                 "tree_reweighted(n_iter=1)", "univariate_logistic", "lbfgs(max_iter=1)", "-1", "0", "nan", "1e999", "",
                 "(", "x(", "../..", "/dev/null", "/", ".", "\x00"]  # fmt: skip
        data = folder / "data.npz"
        shutil.copy(self.data, data)
        words += [str(data), str(folder / "m.bf"), str(folder / "out"), str(self.model)] * 2
        line = [str(rng.choice(["fit", "predict", "evaluate", "infer", "list", "gradcheck", "pack", "compare"]))]
        line += [str(word) for word in rng.choice(words, size=int(rng.integers(0, 7)))]
        before = data.read_bytes()

        def check() -> None:
            _command(*line)
            if data.read_bytes() != before:
                raise WrongAnswer(f"{line} changed its input")

        return check


def _command(*arguments: Any) -> None:
    """Run a command line; a refusal becomes an InputError, anything but one line an error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = run_command([str(each) for each in arguments])
    text = errors.getvalue()
    if "Traceback" in text or "failed with" in text or code not in (0, 1, 2):
        raise RuntimeError(f"exit code {code}: {text[-500:]}")
    if code:
        raise InputError(" ".join(text.split())[:200] or "refused")


CAMPAIGNS = [ModelFiles, Packs, Checkpoints, Arrays, ModelTexts, Pictures, Arguments, CommandLines]
