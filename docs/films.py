"""The moving pictures of "How it works": ``python docs/films.py`` draws docs/images/sweeps.webp and gradient.webp again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import Image

import backfield as bf
from backfield.datasets.generated import add_noise, binary_shapes

matplotlib.use("Agg")
from matplotlib import pyplot

IMAGES = Path(__file__).parent / "images"
SIZE, SWEEPS = 64, 12
#: The sweeps that the model is learned through.
TRAINED = 5


def main() -> None:
    """Draw both films."""
    crf, image, mask = model()
    save("sweeps.webp", [sweep_frame(crf, image, mask, t) for t in range(SWEEPS + 1)], 500)
    theta = crf.potentials(image)
    save("gradient.webp", [gradient_frame(theta, mask, t) for t in range(TRAINED + 1)], 900)


def model() -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a field that was learned through five sweeps, and a test image with its mask."""
    masks = binary_shapes(SIZE)
    images = [add_noise(mask, "gaussian", (0, k)) for k, mask in enumerate(masks)]
    crf = bf.GridCRF(inference=f"tree_reweighted(n_iter={TRAINED})", l2=1e-3).fit(images[:3], masks[:3])
    return crf, images[3], masks[3]


def sweep_frame(crf: Any, image: np.ndarray, mask: np.ndarray, t: int) -> Image.Image:
    """Return input, truth, the marginals after ``t`` sweeps, and the loss up to there."""
    theta = crf.potentials(image)
    runs = [bf.infer(theta, f"tree_reweighted(n_iter={k})") for k in range(SWEEPS + 1)]
    losses = [-np.log(run.shaped()[np.arange(SIZE)[:, None], np.arange(SIZE), mask]).mean() for run in runs]
    figure, axes = pyplot.subplots(1, 4, figsize=(9.6, 2.5), layout="constrained", width_ratios=(1, 1, 1, 1.5))
    axes[0].imshow(image[..., 0], cmap="gray")
    axes[1].imshow(mask, cmap="gray")
    axes[2].imshow(runs[t].shaped()[..., 1], cmap="gray", vmin=0, vmax=1)
    for ax, title in zip(axes, ("input", "truth", f"marginals, {t} sweep{'s' * (t != 1)}"), strict=False):
        ax.set(title=title, xticks=[], yticks=[])
    axes[3].axvline(TRAINED, color="0.8", linewidth=6)
    axes[3].plot(range(SWEEPS + 1), losses, color="0.7")
    axes[3].plot(range(t + 1), losses[: t + 1], color="#D55E00", marker="o", markersize=4)
    axes[3].set(xlabel="sweeps", ylabel="log loss per pixel", ylim=(0, None), title=f"learned through {TRAINED}")
    return drawn(figure)


def gradient_frame(theta: bf.Potentials, mask: np.ndarray, t: int) -> Image.Image:
    """Return how far the evidence of one pixel reaches forward and the loss of one reaches back in ``t`` sweeps."""
    middle = SIZE // 2 * SIZE + SIZE // 2
    inference = f"tree_reweighted(n_iter={t})"
    moved = theta.unary.copy()
    moved[middle, 1] += 1e-2
    step = bf.Potentials(theta.graph, moved, theta.factors)
    forward = (bf.infer(step, inference).unary - bf.infer(theta, inference).unary)[:, 1] / 1e-2
    labels = np.full(SIZE * SIZE, -1)
    labels[middle] = mask.ravel()[middle]
    _, d_theta = bf.value_and_gradient(theta, labels, loss="univariate_logistic", inference=inference)
    figure, axes = pyplot.subplots(1, 2, figsize=(7.2, 3.3), layout="constrained")
    titles = (
        "forward: the marginals that one\npixel's evidence changes",
        "backward: the evidence that one\npixel's loss asks for",
    )
    for ax, values, title in zip(axes, (forward, d_theta.unary[:, 1]), titles, strict=True):
        shown = np.log10(np.abs(values).reshape(SIZE, SIZE) + 1e-30)
        cut = slice(SIZE // 2 - 16, SIZE // 2 + 17)
        picture = ax.imshow(shown[cut, cut], vmin=-8, vmax=0, cmap="magma")
        ax.set(title=title, xticks=[], yticks=[])
        ax.title.set_fontsize("medium")
    figure.colorbar(picture, ax=axes, label="size (powers of ten)")
    figure.suptitle(f"{t} sweep{'s' * (t != 1)}")
    return drawn(figure)


def drawn(figure: Any) -> Image.Image:
    """Return a figure as an image, and close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100)
    pyplot.close(figure)
    return Image.open(buffer).convert("RGB")


def save(name: str, frames: list[Image.Image], milliseconds: int) -> None:
    """Write an animation that pauses at its end."""
    times = [milliseconds] * (len(frames) - 1) + [4 * milliseconds]
    frames[0].save(IMAGES / name, save_all=True, append_images=frames[1:], duration=times, loop=0, quality=70, method=6)


if __name__ == "__main__":
    main()
