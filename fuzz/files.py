"""Damaged files: models, packs, checkpoints, arrays, pictures and models of CRFsuite."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from fuzz.models import LEARNERS, Case, command, fitted, images, same, sentences
from fuzz.mutations import mutate_array, mutate_bytes, mutate_json
from fuzz.runner import WrongAnswer


@dataclass
class ModelFiles:
    """A ``.bf`` file with mutated bytes, header or tensors: refused, or the predictions of the original."""

    name: str = "model_files"
    models: dict[str, tuple[bytes, Any, Any]] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        for name, (model, X) in fitted().items():
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
            if mutated != data and not same(found, expected):
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
        X, y = images()
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
            if not same(found, self.expected):
                raise WrongAnswer("a damaged pack holds other labels")

        return check


@dataclass
class Checkpoints:
    """A mutated checkpoint: refused on resuming, or the fit that is not broken."""

    name: str = "checkpoints"
    sources: dict[str, tuple[bytes, np.ndarray]] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        X, y = images()
        for name, params in LEARNERS.items():
            path = folder / name
            bf.GridCRF(**params).fit(X, y, checkpoint=path, callbacks=[lambda i, w, row: i == 2])
            data = path.read_bytes()
            self.sources[name] = (data, bf.GridCRF(**params).fit(X, y, checkpoint=path, resume=True).weights_)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        name = str(rng.choice(list(self.sources)))
        data, expected = self.sources[name]
        path = folder / "checkpoint"
        path.write_bytes(mutate_bytes(rng, data) if rng.random() < 0.5 else _mutated_safetensors(rng, data))

        def check() -> None:
            X, y = images()
            model = bf.GridCRF(**LEARNERS[name]).fit(X, y, checkpoint=path, resume=True)
            if not np.array_equal(model.weights_, expected):
                raise WrongAnswer("a fit resumed from a damaged checkpoint has other weights")

        return check


@dataclass
class Arrays:
    """An ``.npz`` with mutated bytes, odd arrays, object arrays or a bomb, through ``backfield fit``."""

    name: str = "npz"

    def prepare(self, folder: Path) -> None:
        X, y = images()
        np.savez(folder / "data.npz", images=np.stack(X), masks=np.stack(y))
        command("fit", folder / "data.npz", "--model", "grid", "-o", folder / "m.bf")
        self.data = (folder / "data.npz").read_bytes()

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        path = folder / "data.npz"
        action = rng.random()
        if action < 0.4:
            path.write_bytes(mutate_bytes(rng, self.data))
        elif action < 0.8:
            X, y = images(int(rng.integers(100)))
            arrays = {"images": np.stack(X), "masks": np.stack(y)}
            key = str(rng.choice(list(arrays)))
            arrays[key] = mutate_array(rng, arrays[key])
            np.savez(path, **arrays)
        elif action < 0.9:
            objects = np.empty(2, dtype=object)
            objects[:] = [_nested(rng), {"a": 1}]
            np.savez(path, images=objects, masks=np.zeros((2, 8, 9), int))
        else:
            _bomb(path)
        return lambda: command("fit", path, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")


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
        command("fit", self.source, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        data = folder / "data"
        shutil.copytree(self.source, data)
        victim = data / str(rng.choice(["images", "masks"])) / "1.png"
        if rng.random() < 0.15:
            victim.write_bytes(_huge_png())
        else:
            victim.write_bytes(mutate_bytes(rng, victim.read_bytes()))
        return lambda: command("fit", data, "--model", "grid", "--learner", "lbfgs(max_iter=2)", "-o", folder / "m.bf")


def _huge_png() -> bytes:
    """A few bytes that declare 20 000 x 20 000 pixels."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@dataclass
class CrfsuiteFiles:
    """A ``.crfsuite`` model with mutated bytes, through ``load`` and ``backfield convert``."""

    name: str = "crfsuite"

    def prepare(self, folder: Path) -> None:
        X, y = sentences()
        bf.ChainCRF(unary="observed_linear", learner="lbfgs(max_iter=3)").fit(X, y).save(folder / "m.bf")
        command("convert", folder / "m.bf", folder / "m.crfsuite")
        self.data = (folder / "m.crfsuite").read_bytes()
        bf.load(folder / "m.crfsuite").predict(X)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        path = folder / "m.crfsuite"
        path.write_bytes(mutate_bytes(rng, self.data) if rng.random() < 0.5 else mutate_words(rng, self.data))
        if rng.random() < 0.2:
            return lambda: command("convert", path, folder / "m.bf")

        def check() -> None:
            model = bf.load(path)
            model.predict(sentences()[0])

        return check


def mutate_words(rng: np.random.Generator, data: bytes) -> bytes:
    """Replace 32-bit words, which offsets, counts and indices are."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = 4 * int(rng.integers(len(out) // 4))
        near = struct.unpack_from("<I", out, at)[0] + int(rng.choice([-1, 1, 4, 2**16]))
        value = int(rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(out), len(out) - 1, near % 2**32]))
        struct.pack_into("<I", out, at, value)
    return bytes(out)
