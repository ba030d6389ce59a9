"""Pixels, voxels or points, each joined to all others by Gaussian kernels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.data.format import Format
from backfield.data.kinds import ArrayFile, ImageArrays, ImageFolder
from backfield.data.samples import GridSample
from backfield.energies.pair_kernel import COMPATIBILITIES, PairKernel
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.kernels.gaussian import FILTERS
from backfield.registry import get
from backfield.structures.base import Instance, Structure
from backfield.structures.kernel_specs import KernelSpec

_FORMS = "(H, W, F) of an image, (D, H, W, F) of a volume or (n, F) of points"


@dataclass(frozen=True, repr=False)
class Dense(Structure, name="dense"):
    """Images, volumes or points in which all pairs are joined; or pairs (image, class probabilities of its pixels).

    Parameters
    ----------
    kernels : list of str
        ``position(scale)``, ``bilateral(scale, colour)``, ``features(scale)``.
    learn_scales : bool
        Learn the bandwidths, too.
    compatibility : {"potts", "diagonal", "full"}
        Which labels go together: one strength for all, one for each label, or any symmetric matrix.
    filter : {"auto", "exact", "lattice", "published", "grid"}
        As of :class:`backfield.Kernel`.
    """

    kernels: Any = ("position(3)", "bilateral(60, 10)")
    learn_scales: bool = True
    compatibility: str = "potts"
    filter: str = "auto"

    unit: ClassVar[tuple[str, str]] = ("image", "pixel")
    claims_files: ClassVar[bool] = False
    files: ClassVar[tuple[Format, ...]] = (ImageFolder(), ImageArrays(), ArrayFile())

    def __post_init__(self) -> None:
        given = (self.kernels,) if isinstance(self.kernels, str | KernelSpec) else self.kernels
        if not isinstance(given, list | tuple) or not given:
            raise InputError(f"kernels must list specs such as 'bilateral(60, 10)', received {self.kernels!r}.")
        # Lists, as model files have them, become tuples: a part has a hash.
        object.__setattr__(self, "kernels", tuple(each if isinstance(each, str) else repr(each) for each in given))
        _ = self.specs
        if not isinstance(self.learn_scales, bool):
            raise InputError(f"learn_scales must be True or False, received {self.learn_scales!r}.")
        for name, choices in (("compatibility", COMPATIBILITIES), ("filter", FILTERS)):
            check_choice(name, getattr(self, name), choices)

    @property
    def specs(self) -> list[KernelSpec]:
        """The kernels as parts."""
        return [get("kernel_specs", each) for each in self.kernels]

    def kernel_energies(self) -> list[PairKernel]:
        """Return what holds the weights of each kernel."""
        how = (self.compatibility, self.learn_scales, self.filter)
        return [PairKernel(repr(spec), spec.bandwidths, spec.weight, *how) for spec in self.specs]

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of an array, or of a pair of an image and probabilities."""
        image, p = x if isinstance(x, tuple) and len(x) == 2 else (x, None)
        values = _array(image)
        shape = values.shape[:-1]
        rows = values.reshape(-1, values.shape[-1])
        instance = Instance(shape, 0, rows, kernels=[spec.points(shape, rows) for spec in self.specs])
        for spec, points in zip(self.specs, instance.kernels, strict=True):
            if not np.isfinite(points.features).all():
                raise InputError(f"the features of {spec!r} hold NaN or infinity.")
        if p is None:
            return instance
        p = np.asarray(p)
        if p.ndim != len(shape) + 1 or p.shape[:-1] != shape or p.dtype.kind not in "iuf":
            raise InputError(f"probabilities must be numbers of shape {(*shape, 'labels')}, received {p.dtype} {p.shape}.")
        return dataclasses.replace(instance, node_features=p.reshape(-1, p.shape[-1]))

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return variables without listed factors."""
        return Graph(labels=np.full(sample.n_variables, n_labels))


def _array(x: Any) -> np.ndarray:
    if isinstance(x, GridSample):
        raise InputError("a dense field has no edge features; give the image alone.")
    try:
        values = np.asarray(x)
    except ValueError as error:
        raise InputError(f"an entry must have shape {_FORMS}; its rows differ.") from error
    if values.ndim not in (2, 3, 4) or 0 in values.shape or values.dtype.kind not in "biuf":
        raise InputError(f"an entry must be numbers of shape {_FORMS}, received {values.dtype} {values.shape}.")
    return values
