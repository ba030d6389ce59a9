"""Features of the edges of a 4-connected grid of pixels: constant, colour difference, Sobel response, contrast.

For the edge (i, j): 1; |rgb_i - rgb_j|, the l2 norm; max(sobel_i, sobel_j), the gradient magnitude of the intensity
scaled to [0, 1]. The last two are discretised as [value > t_k] at 10 thresholds ([D13] §8.3: 21 features) or left as
they are ([L13] §8: 3 features). Contrast is exp(-|rgb_i - rgb_j|^2 / 2 m) with m the mean square over the image (Boykov and
Jolly 2001): 1 where colours agree, near 0 where they change most; it has no thresholds. Cost and memory: O(H W D).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from backfield.errors import InputError
from backfield.features.cache import FeatureCache, LazyFeatures, Progress, checked_list, transform_all
from backfield.features.image import as_rgb, grey
from backfield.scikit_learn import BaseEstimator, TransformerMixin

KINDS = ("constant", "difference", "sobel", "contrast")
#: Kinds that are numbers as they are, without thresholds.
_PLAIN = ("constant", "contrast")
#: Most values of one image that go into the quantiles.
_SAMPLE = 20_000


class EdgeFeatures(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Images -> pairs (horizontal (H, W-1, D), vertical (H-1, W, D)) of float32 edge features.

    The defaults are the 21 base features of [D13] §8.3, to be used with one set of weights per direction, which is the
    same model as one set for its 42 split features. ``EdgeFeatures(("constant", "difference"))`` are those of §8.4 and
    ``EdgeFeatures(thresholds=None)`` those of [L13] §8.

    Parameters
    ----------
    kinds : which of ``"constant"``, ``"difference"``, ``"sobel"``, ``"contrast"``, in this order
    thresholds : how many thresholds, an increasing list of them for all kinds, or ``None``: the values themselves
    spacing : where ``fit`` puts n thresholds: ``"linear"`` (evenly, at k / n times the 98 % quantile of the training
        values, k = 1 .. n) or ``"quantile"`` (equally many training values between neighbours)
    split_directions : pad with zeros to 2 D features, the first half for horizontal edges and the second for vertical ones
    cache_dir : folder in which features are kept by content hash and from which they are memory-mapped

    Attributes
    ----------
    thresholds_ : dict of kind -> increasing thresholds; empty where ``thresholds`` is ``None``
    """

    def __init__(
        self,
        kinds: Sequence[str] = KINDS[:3],
        thresholds: int | Sequence[float] | None = 10,
        spacing: str = "linear",
        split_directions: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self.kinds = kinds
        self.thresholds = thresholds
        self.spacing = spacing
        self.split_directions = split_directions
        self.cache_dir = cache_dir

    def fit(self, images: Sequence[Any], y: Any = None) -> Self:
        """Choose the thresholds from training images (nothing to choose where they are given)."""
        self._check()
        measured = [kind for kind in self.kinds if kind not in _PLAIN]
        self.thresholds_: dict[str, np.ndarray] = {}
        if self.thresholds is None:
            return self
        if isinstance(self.thresholds, int | np.integer):
            self.thresholds_ = self._choose(checked_list(images), measured)
        else:
            self.thresholds_ = {kind: np.asarray(self.thresholds, dtype=np.float32) for kind in measured}
        return self

    def set_output(self, *, transform: str | None = None) -> Self:
        """Return self: features of images have three axes, which no data frame has."""
        return self

    def transform(self, images: Sequence[Any], progress: Progress | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (horizontal, vertical) features of each image; ``progress(done, total)`` is called after each."""
        return transform_all(self.transform_one, images, progress)

    def lazy(self, images: Sequence[Any]) -> LazyFeatures:
        """Return a sequence that computes (or reads from the cache) the features of an image when asked for them."""
        return LazyFeatures(self.transform_one, images)

    def transform_one(self, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of one image: horizontal (H, W-1, D) and vertical (H-1, W, D)."""
        self._check()
        if not hasattr(self, "thresholds_") and self.thresholds is not None and not set(self.kinds) <= set(_PLAIN):
            raise InputError("EdgeFeatures has no thresholds yet: call fit with training images first.")
        image = np.asarray(image)
        if self.cache_dir is None:
            return self._compute(image)
        chosen = {kind: values.tolist() for kind, values in getattr(self, "thresholds_", {}).items()}
        recipe = f"EdgeFeatures{tuple(self.kinds)}{self.split_directions}{chosen}"
        horizontal, vertical = FeatureCache(self.cache_dir).get(image, recipe, 2, lambda: self._compute(image))
        return horizontal, vertical

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the D features."""
        names = []
        for kind in self.kinds:
            cuts = getattr(self, "thresholds_", {}).get(kind)
            names += [kind] if cuts is None else [f"{kind}>{cut:.4g}" for cut in cuts]
        if self.split_directions:
            names = [f"{direction} {name}" for direction in ("horizontal", "vertical") for name in names]
        return np.array(names, dtype=object)

    def _check(self) -> None:
        kinds = self.kinds
        if isinstance(kinds, str) or not kinds or len(set(kinds)) != len(kinds) or not set(kinds) <= set(KINDS):
            raise InputError(f"kinds are some of {', '.join(KINDS)}, each once, received {kinds!r}.")
        if self.spacing not in ("linear", "quantile"):
            raise InputError(f"spacing is 'linear' or 'quantile', received {self.spacing!r}.")
        cuts = self.thresholds
        if cuts is None:
            return
        if isinstance(cuts, int | np.integer) and not isinstance(cuts, bool):
            if cuts < 1:
                raise InputError(f"at least one threshold is needed, received {cuts}.")
            return
        values = np.asarray(cuts, dtype=np.float64) if np.ndim(cuts) == 1 else np.empty(0)
        if values.size == 0 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
            raise InputError(f"thresholds are a positive number, an increasing list of numbers or None, received {cuts!r}.")

    def _choose(self, images: Sequence[Any], kinds: list[str]) -> dict[str, np.ndarray]:
        if len(images) == 0:
            raise InputError("received no images; thresholds are chosen from at least one.")
        found: dict[str, list[np.ndarray]] = {kind: [] for kind in kinds}
        for image in images:
            rgb = as_rgb(image)
            for kind in kinds:
                found[kind].append(_thinned(np.concatenate([part.ravel() for part in _measure(rgb, kind)])))
        return {kind: self._cuts(np.concatenate(values)) for kind, values in found.items()}

    def _cuts(self, values: np.ndarray) -> np.ndarray:
        n = int(self.thresholds)  # type: ignore[arg-type]
        if values.size == 0:
            raise InputError("the images have no edges; at least two pixels are needed.")
        if self.spacing == "quantile":
            return np.quantile(values, np.arange(1, n + 1) / (n + 1)).astype(np.float32)
        # [D13] does not say where its thresholds are. Where labels change on the horses is predicted best by these (logistic
        # loss .0719; quantiles .0728, evenly up to the largest value .0728, the values themselves .0763).
        return (np.quantile(values, 0.98) * np.arange(1, n + 1) / n).astype(np.float32)

    def _compute(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rgb = as_rgb(image)
        columns: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for kind in self.kinds:
            cuts = getattr(self, "thresholds_", {}).get(kind)
            for column, values in zip(columns, _measure(rgb, kind), strict=True):
                column.append(values[..., None] if cuts is None else (values[..., None] > cuts).astype(np.float32))
        horizontal, vertical = (np.concatenate(column, axis=2) for column in columns)
        if self.split_directions:
            horizontal = np.concatenate([horizontal, np.zeros_like(horizontal)], axis=2)
            vertical = np.concatenate([np.zeros_like(vertical), vertical], axis=2)
        return horizontal, vertical


def _measure(rgb: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of one kind on horizontal (H, W-1) and vertical (H-1, W) edges."""
    height, width = rgb.shape[:2]
    if kind == "constant":
        return np.ones((height, width - 1), dtype=np.float32), np.ones((height - 1, width), dtype=np.float32)
    if kind == "difference":
        return _norm(rgb[:, 1:] - rgb[:, :-1]), _norm(rgb[1:] - rgb[:-1])
    if kind == "contrast":
        return _contrast(_squares(rgb[:, 1:] - rgb[:, :-1]), _squares(rgb[1:] - rgb[:-1]))
    response = sobel_response(rgb)
    return np.maximum(response[:, 1:], response[:, :-1]), np.maximum(response[1:], response[:-1])


def sobel_response(rgb: np.ndarray) -> np.ndarray:
    """Return the gradient magnitude of the intensity, scaled to a maximum of 1: (H, W)."""
    values = grey(rgb)
    from scipy.ndimage import sobel  # which takes longer to import than a small model needs to start

    return np.hypot(sobel(values, axis=0), sobel(values, axis=1)) / np.float32(np.sqrt(32))


def _norm(difference: np.ndarray) -> np.ndarray:
    return np.sqrt(_squares(difference))


def _squares(difference: np.ndarray) -> np.ndarray:
    return np.einsum("ijk,ijk->ij", difference, difference)


def _contrast(across: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return exp(-d^2 / 2 m) of squared differences, m their mean."""
    total = float(across.sum(dtype=np.float64) + down.sum(dtype=np.float64))
    scale = np.float32(-0.5 * max(across.size + down.size, 1) / max(total, 1e-12))
    return np.exp(across * scale), np.exp(down * scale)


def _thinned(values: np.ndarray) -> np.ndarray:
    """Evenly spaced values of an image, so those of thousands of images fit in memory."""
    return values[:: -(-values.size // _SAMPLE) or 1]
