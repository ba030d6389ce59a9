"""An image larger than memory: features and a field, tile by tile, by one worker process and by two.

    python -m backfield_benchmarks.tiles                          20 000 x 20 000 x 3, the size of the bars
    python -m backfield_benchmarks.tiles --size 3000 --folder DIR

Makes a zarr image of noisy discs, learns from a corner of it, and predicts labels of all of it to another zarr array: 15
features of each pixel, computed for each tile, and truncated TRW. Prints and saves, for each number of workers, seconds and
peaks of resident memory (each worker's own peak, and the largest sum over all processes, sampled ten times a second), then
the speed of two workers over one, and whether a window of the result has the bits that the window has without tiles. Bars:
1 GiB for a worker, 2 GiB for all, 1.7 times as fast.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from backfield.features import LocalFeatures
from backfield_benchmarks.cells import Cells

CHUNK = 1000
FEATURES = LocalFeatures(scales=(1.0, 2.0), kinds=("intensity", "gaussian", "gradient"))
INFERENCE = "tree_reweighted(n_iter=5)"


def make_image(path: Path, size: int) -> Any:
    """Write noisy discs of radius 20 in three channels, chunk by chunk."""
    import zarr

    image = zarr.open_array(
        str(path), mode="w", shape=(size, size, 3), chunks=(min(CHUNK, size), min(CHUNK, size), 3), dtype="u1"
    )
    for top in range(0, size, CHUNK):
        for left in range(0, size, CHUNK):
            rows, columns = np.arange(top, min(top + CHUNK, size)), np.arange(left, min(left + CHUNK, size))
            rng = np.random.default_rng([top, left])
            noise = rng.normal(0, 60, (len(rows), len(columns), 3))
            part = 90 + 70 * discs(rows, columns)[..., None] + noise
            image[top : top + CHUNK, left : left + CHUNK] = np.clip(part, 0, 255).astype(np.uint8)
    return image


def discs(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return which pixels are inside: discs of radius 20, one in every square of 64 pixels."""
    return (rows[:, None] % 64 - 32) ** 2 + (columns % 64 - 32) ** 2 < 400


def learn(image: Any) -> bf.GridCRF:
    """Fit to the labelled corner."""
    side = min(192, image.shape[0])
    truth = discs(np.arange(side), np.arange(side)).astype(int)
    crf = bf.GridCRF(inference=INFERENCE, learner="lbfgs(max_iter=20)")
    return crf.fit([FEATURES.over(image)[:side, :side]], [truth])


class Memory:
    """Peaks of resident memory of this process and its children while a block runs."""

    def __enter__(self) -> Memory:
        import psutil

        self.process, self.total = psutil.Process(), 0
        self.own: dict[int, int] = {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.1):
            self._look()

    def _look(self) -> None:
        import psutil

        total = 0
        for process in (self.process, *self.process.children(recursive=True)):
            try:
                resident = process.memory_info().rss
            except psutil.Error:  # it has ended
                continue
            total += resident
            self.own[process.pid] = max(self.own.get(process.pid, 0), resident)
        self.total = max(self.total, total)

    def row(self) -> dict[str, float]:
        """Return MiB: of the largest worker, of this process, and of all."""
        workers = [peak for pid, peak in self.own.items() if pid != self.process.pid]
        return {
            "worker_mib": round(max(workers, default=0) / 2**20),
            "client_mib": round(self.own[self.process.pid] / 2**20),
            "all_mib": round(self.total / 2**20),
        }


def run(crf: bf.GridCRF, lazy: Any, tile: int, workers: int, out: Path) -> dict[str, Any]:
    """Predict all tiles by so many worker processes; starting these is not counted."""
    import distributed

    options: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
    cluster = distributed.LocalCluster(n_workers=workers, host="127.0.0.1", **options)
    with cluster, Memory() as memory, distributed.Client(cluster) as client:
        small = FEATURES.over(lazy.image[:512, :512])
        crf.predict(small, tile=64, cluster=client)  # workers import and load kernels
        start = time.perf_counter()
        crf.predict(lazy, tile=tile, cluster=client, out=out)
        seconds = time.perf_counter() - start
    pixels = lazy.shape[0] * lazy.shape[1]
    return {"seconds": round(seconds, 2), "ns_per_pixel": round(1e9 * seconds / pixels, 1)} | memory.row()


def same_bits(crf: bf.GridCRF, lazy: Any, found: Any, tile: int) -> bool:
    """Compare a window around the corner of four tiles with its prediction as one image."""
    side, halo = min(tile, lazy.shape[0] // 2), 64
    window = slice(side - side // 2, side + side // 2)
    around = slice(max(0, window.start - halo) // 2 * 2, min(lazy.shape[0], window.stop + halo))
    whole = crf.predict([lazy[around, around]])[0]
    inner = slice(window.start - around.start, window.stop - around.start)
    return bool((whole[inner, inner] == found[window, window]).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=20_000, help="side of the image in pixels")
    parser.add_argument("--tile", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the arrays go (default: a temporary folder)")
    parser.add_argument("--out", default="tiles", help="a name in docs/results/studies, or a JSON file")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=args.folder))
    cells = Cells(args.out, " ".join(["python -m backfield_benchmarks.tiles", *sys.argv[1:]]))
    cells.rows = {}  # all rows are of one run
    try:
        image = make_image(folder / "image.zarr", args.size)
        crf, lazy = learn(image), FEATURES.over(image)
        shape = "x".join(map(str, image.shape))
        cells.get("image", lambda: {"shape": shape, "features": lazy.shape[-1], "tile": args.tile, "inference": INFERENCE})
        seconds = []
        for workers in (1, 2):
            out = folder / f"labels{workers}.zarr"
            row = cells.get(f"{workers} workers", lambda n=workers, o=out: run(crf, lazy, args.tile, n, o))
            seconds.append(row["seconds"])
        import zarr

        one, two = (zarr.open_array(str(folder / f"labels{k}.zarr"), mode="r") for k in (1, 2))
        cells.get("speed-up", lambda: {"two_over_one": round(seconds[0] / seconds[1], 2)})
        equal = all(np.array_equal(one[k : k + CHUNK], two[k : k + CHUNK]) for k in range(0, args.size, CHUNK))
        cells.get("bits", lambda: {"workers_agree": equal, "as_one_image": same_bits(crf, lazy, two, args.tile)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
