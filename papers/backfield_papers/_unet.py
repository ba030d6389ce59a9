"""A small U-Net (Ronneberger, Fischer and Brox 2015), the network in front of fields: (B, F, H, W) -> (B, L, H, W).

Needs PyTorch: imported by experiments with networks only.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Down to half the size at each level and up again; one level for each of ``channels``.

    ``squeeze``: the features of a pixel are first mapped to the channels of the finest level, cheaper where they are many.
    """

    def __init__(self, n_features: int, n_labels: int, channels: tuple[int, ...], squeeze: bool = False) -> None:
        super().__init__()
        first = channels[0] if squeeze else n_features
        self.squeeze = nn.Sequential(nn.Conv2d(n_features, first, 1), nn.GroupNorm(4, first), nn.ReLU()) if squeeze else None
        self.down = nn.ModuleList([_block(a, b) for a, b in zip((first, *channels), channels, strict=False)])
        pairs = list(itertools.pairwise(channels))[::-1]
        self.up = nn.ModuleList([_block(coarse + fine, fine) for fine, coarse in pairs])
        self.last = nn.Conv2d(channels[0], n_labels, 1)

    def forward(self, x: Any) -> Any:
        """Return scores of the labels."""
        height, width = x.shape[2:]
        side = 2 ** len(self.up)
        x = functional.pad(x, (0, -width % side, 0, -height % side), mode="replicate")
        levels = [self.down[0](x if self.squeeze is None else self.squeeze(x))]
        for block in self.down[1:]:
            levels.append(block(functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2), levels.pop()], 1))
        return self.last(x)[:, :, :height, :width]


class GridUNet(UNet):
    """The same for :class:`backfield.Network`, (H, W, F) -> (H, W, L), of features with this ``mean`` and ``spread``."""

    def __init__(self, n_labels: int, channels: tuple[int, ...], mean: Any, spread: Any) -> None:
        super().__init__(len(mean), n_labels, channels, squeeze=True)
        self.register_buffer("mean", torch.as_tensor(mean))
        self.register_buffer("spread", torch.as_tensor(spread))

    def forward(self, x: Any) -> Any:
        """Return scores of the labels."""
        x = (x - self.mean) / self.spread
        return super().forward(x.permute(2, 0, 1)[None])[0].permute(1, 2, 0).contiguous()


def seeded(cls: type[UNet], seed: int, *arguments: Any, **options: Any) -> UNet:
    """Return a network whose first weights are drawn with a seed; the state of PyTorch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(*arguments, **options)


def _block(before: int, after: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(),
    )  # fmt: skip
