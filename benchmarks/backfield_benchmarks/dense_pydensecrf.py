"""``backfield.compat.pydensecrf`` beside pydensecrf2 on photographs: the same answers, and the time; then our own gradient.

    pip install cython==0.29.37 setuptools wheel && pip install --no-build-isolation pydensecrf2     (builds from source)
    NUMBA_NUM_THREADS=1 python -m backfield_benchmarks.dense_pydensecrf --images FOLDER [--count 20] [--only agreement]

Agreement: 10 iterations, position 3 and bilateral 60, 10 with weights 3 and 10, pictures at 320 x 480, 2 and 21 labels,
set-up included in the time; seconds of the processor, both in turns, the fastest of three turns of each picture. Gradient:
value and gradient of ``univariate_logistic`` through 5 iterations in unary terms, weights, compatibility and bandwidths, as
a multiple of the 5 iterations alone. Memory: the same at 1000 x 1000 with 21 labels, as the highest resident size. Volume
(``--volumes FOLDER``): 120 x 150 x 100 voxels, bilateral edges, 10 iterations.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from backfield_benchmarks.dense_filter import features, made_up_unary, picture

SIZE = (320, 480)


def run(module, image, unary, n_iter=10):
    """Return Q (pixels, labels) of either package."""
    height, width = image.shape[:2]
    crf = module.DenseCRF2D(width, height, unary.shape[1])
    crf.setUnaryEnergy(np.ascontiguousarray(-unary.T))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=60, srgb=10, rgbim=image, compat=10)
    return np.array(crf.inference(n_iter)).T


def agreement(paths, turns=3):
    import pydensecrf.densecrf as theirs

    import backfield.compat.pydensecrf.densecrf as ours

    for n_labels in (2, 21):
        rows = []
        for number, path in enumerate(paths):
            image = picture(path, *SIZE)
            unary = made_up_unary(image, n_labels, number)
            seconds: dict[Any, list[float]] = {theirs: [], ours: []}
            out = {}
            for _ in range(turns + (number == 0)):
                for module in (theirs, ours):
                    start = time.process_time()
                    out[module] = run(module, image, unary)
                    seconds[module].append(time.process_time() - start)
            a, b = out[theirs], out[ours]
            same = (a.argmax(axis=1) == b.argmax(axis=1)).mean()
            rows.append((np.abs(a - b).mean(), same, min(seconds[theirs]), min(seconds[ours])))
        near, same, slow, fast = np.array(rows).T
        row = {
            "labels": n_labels,
            "images": len(rows),
            "mean |dQ|": float(f"{near.mean():.3g}"),
            "worst": float(f"{near.max():.3g}"),
        }
        row |= {"labels agree": round(float(same.mean()), 6), "pydensecrf2": round(float(np.median(slow)), 4)}
        row |= {"ours": round(float(np.median(fast)), 4), "ratio": round(float(np.median(fast / slow)), 3)}
        print(json.dumps(row), flush=True)


def potentials(image, unary):
    """Return the model with kernels that are learned."""
    points = features(image).astype(np.float32)
    sigma = np.array([60.0, 60.0, 10.0, 10.0, 10.0])
    kernels = [bf.Kernel(points[:, :2], 3.0, 3.0, filter="lattice"), bf.Kernel(points, 10.0, sigma, filter="lattice")]
    return bf.Potentials(bf.Graph(labels=np.full(len(points), unary.shape[1])), unary, groups=kernels)


def gradient(paths, turns=4, n_iter=5):
    how: dict[str, Any] = {"inference": f"mean_field(n_iter={n_iter})", "dtype": "float32"}
    for n_labels in (2, 21):
        ratios, forward = [], []
        for number, path in enumerate(paths[:3]):
            image = picture(path, *SIZE)
            unary = made_up_unary(image, n_labels, number)
            labels = unary.argmax(axis=1)
            best = [np.inf, np.inf]
            for _ in range(turns):
                theta = potentials(image, unary)
                start = time.process_time()
                bf.infer(theta, **how)
                best[0] = min(best[0], time.process_time() - start)
                theta = potentials(image, unary)
                start = time.process_time()
                bf.value_and_gradient(theta, labels, loss="univariate_logistic", **how)
                best[1] = min(best[1], time.process_time() - start)
            ratios.append(best[1] / best[0])
            forward.append(best[0])
        row = {"labels": n_labels, "iterations": n_iter, "forward": round(float(np.median(forward)), 4)}
        print(json.dumps(row | {"gradient / forward": round(float(np.median(ratios)), 2)}), flush=True)


def memory(paths):
    image = picture(paths[0], 1000, 1000)
    unary = made_up_unary(image, 21, 0).astype(np.float32)
    theta = potentials(image, unary)
    labels = unary.argmax(axis=1)
    how: dict[str, Any] = {"loss": "univariate_logistic", "inference": "mean_field(n_iter=5)", "dtype": "float32"}
    before = _resident()
    start = time.process_time()
    bf.value_and_gradient(theta, labels, **how)
    row = {"pixels": 10**6, "labels": 21, "GiB before": round(before, 2), "GiB at most": round(_highest(), 2)}
    print(json.dumps(row | {"seconds": round(time.process_time() - start, 1)}), flush=True)


def volume(folder):
    """10 iterations with bilateral edges on the MR volume of SimpleCRF, 2 labels, set-up included."""
    import nibabel

    scan, start = (
        np.asanyarray(nibabel.Nifti1Image.from_filename(folder / f"2013_12_1_{name}.nii.gz").dataobj)
        for name in ("img", "init")
    )
    start = start > 0
    scan = 255 * (scan - scan.min()) / np.ptp(scan)
    points = np.concatenate([np.moveaxis(np.indices(scan.shape), 0, -1), scan[..., None]], axis=-1).reshape(-1, 4)
    p = np.where(start.reshape(-1), 0.8, 0.2)
    unary = np.log(np.stack([1 - p, p], axis=1)).astype(np.float32)
    graph = bf.Graph(labels=np.full(len(points), 2))
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        kernel = bf.Kernel(points.astype(np.float32), 5.0, bandwidths=np.array([5.0, 5.0, 5.0, 10.0]), filter="lattice")
        run = bf.infer(bf.Potentials(graph, unary, groups=[kernel]), "mean_field(n_iter=10)", dtype="float32")
        seconds.append(time.process_time() - begin)
    changed = float((run.unary.argmax(axis=1) != start.reshape(-1)).mean())
    row = {
        "volume": list(scan.shape),
        "iterations": 10,
        "seconds": round(min(seconds), 2),
        "labels changed": round(changed, 4),
    }
    print(json.dumps(row), flush=True)


def _highest():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**30


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--volumes", type=Path, help="The folder with 2013_12_1_img.nii.gz (needs nibabel).")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", choices=["agreement", "gradient", "memory", "volume"])
    settings = parser.parse_args()
    paths = sorted(settings.images.iterdir())
    paths = paths[:: max(1, len(paths) // settings.count)][: settings.count]
    for name, function in (("memory", memory), ("agreement", agreement), ("gradient", gradient)):
        if settings.only in (None, name):
            function(paths)
    if settings.volumes and settings.only in (None, "volume"):
        volume(settings.volumes)


if __name__ == "__main__":
    main()
