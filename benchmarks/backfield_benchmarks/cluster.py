"""What a distributed iteration costs: kernels, latency, bytes; 1 against 2 workers on the horses.

    python -m backfield_benchmarks.cluster --data DIR [--images 200] [--rounds 5] > figures
    python -m backfield_benchmarks.cluster --figures figures

Clique logistic loss through 20 sweeps of TRW on the 100 + 20 features of [D13] §8.3, packed; every worker is a process of
one thread on this machine, behind a real scheduler on loopback. Prints JSON lines, and a model of the time of an iteration
with more workers than there are here (``--figures``: for the lines of an earlier run). docs/scale.md is made of them.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

import backfield as bf
from backfield.data.packed import write_shards
from backfield.datasets import horses
from backfield.features import EdgeFeatures, PixelFeatures
from backfield.training.execution import using
from backfield.training.execution.cluster import open_cluster
from backfield_benchmarks.probe import problem_of


class Inputs:
    """Features of images, made one at a time."""

    def __init__(self, images):
        self.images, self.pixels = images, PixelFeatures()
        self.edges = EdgeFeatures(kinds=("difference", "sobel")).fit(images)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, k):
        return bf.GridSample(self.pixels.transform_one(self.images[k]), *self.edges.transform_one(self.images[k]))


class Nothing:
    """A sum that costs nothing but its way."""

    def __init__(self, size):
        self.size = size

    def chunk(self, numbers, w):
        return np.zeros(self.size)

    @staticmethod
    def add(a, b):
        return np.add(a, b, out=a)


def pack(folder, data, count):
    read = horses.load(data)
    chosen = read.train[:count]
    return write_shards(folder, Inputs([read.images[k] for k in chosen]), [read.masks[k] for k in chosen], n_jobs=2)


def problem(shards, n_jobs=1):
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=20)", loss="clique_logistic", l2=1e-3, n_jobs=n_jobs)
    return problem_of(crf, shards.X, shards.y)


def loopback():
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def evaluations(p, rounds):
    """Return seconds of each evaluation, and what the cluster says about it."""
    rng = np.random.default_rng(0)
    if p.shared is not None:
        p.shared.counts_bytes = True
    p.value_and_gradient(np.zeros(p.n_weights))  # opens shards, looks at checksums, loads kernels
    found = []
    for _ in range(rounds):
        w = 0.05 * rng.normal(size=p.n_weights)
        before, start = loopback(), time.perf_counter()
        value = p.value_and_gradient(w)
        seconds = time.perf_counter() - start
        found.append((seconds, loopback() - before, p.shared and p.shared.last, value))
    return found


SAID: list[dict[str, object]] = []


def say(**row):
    SAID.append({key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in row.items()})
    print(json.dumps(SAID[-1]), flush=True)


def horses_on_workers(shards, rounds):
    local = evaluations(problem(shards), rounds)
    say(
        case="threads=1",
        seconds=float(np.median([s for s, *_ in local])),
        images=len(shards),
        mib=shards.total_bytes / 2**20,
    )
    values, seconds = [value for *_, value in local], {}
    for workers in (1, 2):
        cluster = open_cluster(f"local:{workers}")
        try:
            with using(cluster.client):
                p = problem(shards)
                found = evaluations(p, rounds)
        finally:
            cluster.close()
        same = all(a.gradient.tobytes() == value.gradient.tobytes() for (*_, value), a in zip(found, values, strict=True))
        wall = [s for s, *_ in found]
        seconds.setdefault(workers, []).extend(wall)
        say(case=f"workers={workers}", seconds=float(np.median(wall)), same_bytes_as_threads=same, weights=p.n_weights,
            overhead_ms=1e3 * float(np.median([cost.seconds - cost.slowest for _, _, cost, _ in found])),
            slowest_s=float(np.median([cost.slowest for _, _, cost, _ in found])),
            kernels_s=float(np.median([cost.kernels for _, _, cost, _ in found])),
            bytes_out=found[0][2].bytes_out, bytes_back=found[0][2].bytes_back,
            loopback_bytes=float(np.median([b for _, b, _, _ in found])))  # fmt: skip
    say(case="speed of 2 workers against 1", ratio=min(seconds[1]) / min(seconds[2]),
        median_ratio=float(np.median(seconds[1]) / np.median(seconds[2])))  # fmt: skip


def rounds_of_nothing():
    """Time of a round against the number of weights and the number of tasks."""
    cluster = open_cluster("local:2")
    try:
        slots = cluster.slots()
        for size, tasks in ((100, 2), (10_000, 2), (100_000, 2), (1_000_000, 2), (100, 8), (100, 64)):
            cluster._slots, cluster._asked = [slots[k * len(slots) // tasks] for k in range(tasks)], np.inf
            shared = cluster.share(Nothing(size), np.ones(tasks))
            shared.counts_bytes = True
            w = np.zeros(size)
            times, here = [], []
            for _ in range(12):
                start, used = time.perf_counter(), time.process_time()
                shared.sum(None, w, n_chunks=tasks)
                times.append(time.perf_counter() - start)
                here.append(time.process_time() - used)  # client and scheduler are this process
            say(case="round", weights=size, tasks=tasks, ms=1e3 * float(np.median(times[2:])),
                client_and_scheduler_cpu_ms=1e3 * float(np.median(here[2:])),
                bytes_out=shared.last.bytes_out, bytes_back=shared.last.bytes_back)  # fmt: skip
    finally:
        cluster.close()


def model(rows):
    """Print T(P) = ceil(C/P)/C K + l0 + P (l1 + lw m): C chunks, K kernel seconds, m weights, P workers of one thread."""
    rounds = {(row["weights"], row["tasks"]): row for row in rows if row["case"] == "round"}
    one, two = (next(row for row in rows if row["case"] == f"workers={n}") for n in (1, 2))
    # What grows with workers is the processor time of client and scheduler; workers wait for it one after the other.
    cpu = {key: row["client_and_scheduler_cpu_ms"] / 1e3 for key, row in rounds.items()}
    l1 = (cpu[100, 64] - cpu[100, 2]) / 62
    lw = (cpu[1_000_000, 2] - cpu[100, 2]) / 2 / 1e6
    m, images = one["weights"], next(row for row in rows if row["case"] == "threads=1")["images"]
    l0 = (one["overhead_ms"] + two["overhead_ms"]) / 2e3 - 1.5 * (l1 + lw * m)
    say(case="model", l0_ms=1e3 * l0, l1_ms=1e3 * l1, lw_ns=1e9 * lw, kernel_ms_per_image=1e3 * one["kernels_s"] / images)
    for count, chunks in ((images, 64), (10_000, 1024), (100_000, 8192)):
        kernels = one["kernels_s"] * count / images
        for workers in (1, 2, 10, 100, 1000):
            seconds = -(-chunks // workers) / chunks * kernels + l0 + min(workers, chunks) * (l1 + lw * m)
            speed = (kernels + l0 + l1 + lw * m) / seconds
            say(case="predicted", images=count, chunks=chunks, workers=workers, seconds=seconds, speed_up=speed)
    say(case="checked", predicted_1=kernels * images / count + l0 + l1 + lw * m, measured_1=one["seconds"],
        predicted_2=kernels * images / count / 2 + l0 + 2 * (l1 + lw * m), measured_2=two["seconds"])  # fmt: skip


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--data")
    options.add_argument("--figures", help="Only print the model, for the lines of an earlier run.")
    options.add_argument("--images", type=int, default=200)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--folder", help="Keep the packed horses there.")
    given = options.parse_args()
    if given.figures is not None:
        model([json.loads(line) for line in Path(given.figures).read_text().splitlines() if line.startswith("{")])
        return
    rounds_of_nothing()
    with tempfile.TemporaryDirectory() as folder:
        shards = pack(given.folder or Path(folder) / "horses", given.data, given.images)
        horses_on_workers(shards, given.rounds)
    model(SAID)


if __name__ == "__main__":
    main()
