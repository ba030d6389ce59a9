"""Forged files: changed on purpose and signed again, so that no checksum refuses them.

What they hold may be anything, so no answer is wrong; but they are refused in one sentence or give an answer, within the
limits of time and memory.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

import backfield as bf
from backfield.data.packed.reader import identity_of, sha256_of
from backfield.estimators.model_file import write as write_model
from backfield.learners._checkpoint import read_checkpoint, write_checkpoint
from fuzz.models import LEARNERS, Case, fitted, images, sentences
from fuzz.mutations import mutate_array, mutate_json


def header_of(data: bytes) -> dict[str, Any]:
    """Return the header of a safetensors file."""
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def mutate_tensors(rng: np.random.Generator, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return tensors of which one is changed, missing or renamed."""
    out, name = dict(tensors), str(rng.choice(sorted(tensors)))
    action = rng.random()
    if action < 0.1:
        del out[name]
    elif action < 0.2:
        out[f"{name}x"] = out.pop(name)
    else:
        changed = mutate_array(rng, out[name])
        out[name] = np.ascontiguousarray(changed if changed.dtype.kind != "c" else changed.real.astype(np.float64))
    return out


@dataclass
class ForgedModels:
    """A ``.bf`` file with another text or other tensors and a checksum that is right."""

    name: str = "forged_models"
    models: dict[str, tuple[bytes, Any]] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        for name, (model, X) in fitted().items():
            model.save(folder / f"{name}.bf")
            self.models[name] = ((folder / f"{name}.bf").read_bytes(), X)
            bf.load(folder / f"{name}.bf").predict(X)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        data, X = self.models[str(rng.choice(list(self.models)))]
        text, tensors = json.loads(header_of(data)["__metadata__"]["backfield"]), dict(parse_tensors(data))
        if rng.random() < 0.5:
            text = mutate_json(rng, text)
        else:
            tensors = mutate_tensors(rng, tensors)
        write_model(folder / "model.bf", text, tensors)
        return lambda: bf.load(folder / "model.bf").predict(X)


@dataclass
class ForgedPacks:
    """A packed folder whose shards hold other arrays, with the right checksums, through a short fit."""

    name: str = "forged_packs"
    sources: dict[str, Any] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        X, y = images()
        sequences, tags = sentences()
        graph = bf.Graph.from_edges([[0, 1], [1, 2], [0, 2]], labels=2)
        samples = [bf.Sample(graph, np.eye(3), np.ones((3, 1)))] * 2
        rows = np.random.default_rng(0).normal(size=(2, 5, 3))
        packs = {"grid": (bf.GridCRF, X, y), "graph": (bf.GraphCRF, samples, [[0, 1, 1], [1, 0, 1]])}
        packs |= {"chain": (bf.ChainCRF, list(rows), [[0, 1, 0, 1, 1], [1, 1, 0, 0, 1]])}
        packs |= {"named": (bf.ChainCRF, sequences, tags)}
        for name, (kind, examples, labels) in packs.items():
            bf.write_shards(folder / name, examples, labels)
            model = kind(learner="lbfgs(max_iter=2)", inference="tree_reweighted(n_iter=2)", gradient="truncated")
            self.sources[name] = (folder / name, model)
            model.fit(folder / name).predict(folder / name)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        source, model = self.sources[str(rng.choice(list(self.sources)))]
        pack = folder / "pack"
        shutil.copytree(source, pack)
        index = json.loads((pack / "index.json").read_text())
        shard = index["shards"][int(rng.integers(len(index["shards"])))]
        data = (pack / shard[0]).read_bytes()
        metadata = header_of(data).get("__metadata__")
        (pack / shard[0]).write_bytes(format_tensors(mutate_tensors(rng, dict(parse_tensors(data))), metadata=metadata))
        shard[3:] = sha256_of(pack / shard[0])
        index["identity"] = identity_of(index, json.loads((pack / "plan.json").read_text())["recipe"])
        (pack / "index.json").write_text(json.dumps(index))
        return lambda: model.fit(pack).predict(pack)


@dataclass
class ForgedCheckpoints:
    """A checkpoint with another state and a checksum that is right, resumed."""

    name: str = "forged_checkpoints"
    sources: dict[str, Path] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        X, y = images()
        for name, params in LEARNERS.items():
            path = folder / name
            bf.GridCRF(**params).fit(X, y, checkpoint=path, callbacks=[lambda i, w, row: i == 2])
            self.sources[name] = path
            shutil.copy(path, folder / "again")
            bf.GridCRF(**params).fit(X, y, checkpoint=folder / "again", resume=True)

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        name = str(rng.choice(list(self.sources)))
        arrays, content = read_checkpoint(self.sources[name])
        if rng.random() < 0.5:
            key = str(rng.choice([key for key in content if key != "identity"] + ["state"] * 4))
            changed = mutate_json(rng, [content[key]])
            content[key] = changed[0] if changed else None
        else:
            arrays = mutate_tensors(rng, arrays)
        write_checkpoint(folder / "checkpoint", arrays, content)
        X, y = images()
        return lambda: bf.GridCRF(**LEARNERS[name]).fit(X, y, checkpoint=folder / "checkpoint", resume=True)
