"""Volumes and images in NIfTI, TIFF and zarr with mutated bytes, headers or chunks, through ``backfield predict``."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fuzz.models import Case, command
from fuzz.mutations import mutate_bytes, mutate_json

#: Fields of a NIfTI header: sizes, type of the numbers, size of a voxel, place of the numbers, scale.
_HEADER = [(40, "<h", 8), (70, "<h", 1), (72, "<h", 1), (76, "<f", 8), (108, "<f", 1), (112, "<f", 2)]
_NUMBERS = [-1, 0, 1, 2, 7, 8, 16, 64, 512, 1024, 2048, 32767, -32768, float("nan"), float("inf"), 1e30, -5.0]


@dataclass
class Stacks:
    """A damaged file, or one that declares what it does not hold: refused, or read within the limits."""

    name: str = "stacks"
    sources: dict[str, Path] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        import nibabel
        import tifffile
        import zarr

        rng = np.random.default_rng(0)
        truth = (rng.random((5, 7, 6)) < 0.5).astype(np.uint8)
        values = (truth * 90 + rng.integers(90, size=truth.shape)).astype(np.uint8)
        for kind, array in (("images", values), ("masks", truth)):
            (folder / "data" / kind).mkdir(parents=True)
            tifffile.imwrite(folder / "data" / kind / "a.tif", array)
        self.model = folder / "m.bf"
        command("fit", folder / "data", "--features", "raw", "--learner", "lbfgs(max_iter=2)", "--inference",
                "mean_field(n_iter=2)", "--quiet", "-o", self.model)  # fmt: skip
        for name in ("plain.nii", "packed.nii.gz"):
            nibabel.save(nibabel.Nifti1Image(values, np.diag([2.0, 0.5, 1.5, 1])), folder / name)
        for name, options in {"plain": {}, "packed": {"compression": "zlib"}, "tiled": {"tile": (16, 16)},
                              "imagej": {"imagej": True, "metadata": {"axes": "ZYX", "spacing": 2.0}}}.items():  # fmt: skip
            tifffile.imwrite(folder / f"{name}.tif", values, **options)
        for version in (2, 3):
            array = zarr.open_array(str(folder / f"v{version}.zarr"), mode="w", shape=values.shape, chunks=(4, 4, 4),
                                    dtype=values.dtype, zarr_format=version)  # fmt: skip
            array[...] = values
            group = zarr.open_group(str(folder / f"ome{version}.zarr"), mode="w", zarr_format=version)
            inner = group.create_array("0", shape=values.shape, chunks=(4, 4, 4), dtype=values.dtype)
            inner[...] = values
            group.attrs["multiscales"] = [{"axes": ["z", "y", "x"], "datasets": [{"path": "0"}]}]
        self.sources = {path.name: path for path in folder.iterdir() if path.suffix in (".nii", ".gz", ".tif", ".zarr")}
        for name, path in self.sources.items():
            command("predict", self.model, path, "-o", folder / f"out-{name}")

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        name = str(rng.choice(sorted(self.sources)))
        path = folder / name
        if path.suffix == ".zarr":
            shutil.copytree(self.sources[name], path)
            _damage_zarr(rng, path)
        else:
            data = self.sources[name].read_bytes()
            header = path.suffix == ".nii" and rng.random() < 0.6
            path.write_bytes(_mutated_header(rng, data) if header else mutate_bytes(rng, data))
        tile = ["--tile", "3"] if rng.random() < 0.5 else []
        return lambda: command("predict", self.model, path, "-o", folder / f"out-{name}", *tile)


def _mutated_header(rng: np.random.Generator, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 3))):
        start, kind, count = _HEADER[int(rng.integers(len(_HEADER)))]
        value = _NUMBERS[int(rng.integers(len(_NUMBERS) - 5 * (kind == "<h")))]
        struct.pack_into(kind, out, start + struct.calcsize(kind) * int(rng.integers(count)), value)
    return bytes(out)


def _damage_zarr(rng: np.random.Generator, path: Path) -> None:
    """Mutate one file: its JSON, its bytes, or a chunk that unpacks to far more than it should."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    victim = files[int(rng.integers(len(files)))]
    try:
        content = json.loads(victim.read_text())
    except ValueError:
        bomb = rng.random() < 0.2
        victim.write_bytes(zlib.compress(bytes(2**22), 1) if bomb else mutate_bytes(rng, victim.read_bytes()))
        return
    if rng.random() < 0.8:
        victim.write_text(json.dumps(mutate_json(rng, content)))
    else:
        victim.write_bytes(mutate_bytes(rng, victim.read_bytes()))
