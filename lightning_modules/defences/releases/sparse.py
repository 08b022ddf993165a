"""Releases that leave entries out: at random (dropout), or all but the largest (topk)."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_modules.defences.releases.base import RELEASES, Release
from options import option


@RELEASES("dropout")
class Dropout(Release):
    """Every entry is 0 with probability p, by a fresh draw; the others are as they are."""

    random = True
    drop: float = option(0.5, "p, the probability that an entry is left out", above=0, below=1)

    def expected(self, z: Tensor) -> Tensor:
        return z * (1 - self.drop)

    def forward(self, z: Tensor) -> Tensor:
        return z * (torch.rand_like(z) >= self.drop)


@RELEASES("topk")
class TopK(Release):
    """Of every answer the entries of largest magnitude, the others 0."""

    keep: float = option(0.05, "the share of entries that is kept", above=0, most=1)

    def forward(self, z: Tensor) -> Tensor:
        flat = z if z.ndim == 3 else z.flatten(1)
        count = max(1, round(self.keep * flat.shape[-1]))
        largest = flat.abs().topk(count, dim=-1).indices
        kept = torch.zeros_like(flat).scatter_(-1, largest, 1.0)
        return (flat * kept).view_as(z)
