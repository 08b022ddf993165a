"""Releases that leave entries out: at random (dropout), or all but the largest (topk)."""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Release
from sweetspot.options import option


@RELEASES("dropout")
class Dropout(Release):
    """Every entry is 0 with probability p, by a fresh draw; the others are as they are."""

    random = True
    leaves_out = True
    drop: float = option(0.5, "p, the probability that an entry is left out", above=0, below=1)

    def expected(self, z: Tensor) -> Tensor:
        return z * (1 - self.drop)

    def forward(self, z: Tensor) -> Tensor:
        return z * (torch.rand_like(z) >= self.drop)

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        """The squared difference of entries that survived; one that is exactly 0 may have been left out."""
        return torch.where(seen != 0, z - seen, 0.0).square()

    def unavoidable(self, before: float = 0.0) -> float:
        return (1 - self.drop) * before**2


@RELEASES("topk")
class TopK(Release):
    """Of every answer the entries of largest magnitude, the others 0."""

    leaves_out = True
    keep: float = option(0.05, "the share of entries that is kept", above=0, most=1)

    def forward(self, z: Tensor) -> Tensor:
        flat = rows(z)
        largest = flat.abs().topk(self.count(flat), dim=-1).indices
        kept = torch.zeros_like(flat).scatter_(-1, largest, 1.0)
        return (flat * kept).view_as(z)

    def count(self, flat: Tensor) -> int:
        """How many entries of an answer are kept."""
        return max(1, round(self.keep * flat.shape[-1]))

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        """The squared difference of entries that survived; of the others what is above the smallest survivor."""
        flat, answer = rows(z), rows(seen)
        smallest = answer.abs().topk(self.count(answer), dim=-1).values[..., -1:]  # 0 where fewer were not 0
        above = (flat.abs() - smallest).clamp_min(0)
        return torch.where(answer != 0, flat - answer, above).square().view_as(z)

    def unavoidable(self, before: float = 0.0) -> float:
        return self.keep * before**2


def rows(z: Tensor) -> Tensor:
    """Answers flat, (B, d); of a sequence (B, T, d) every position is an answer."""
    return z if z.ndim == 3 else z.flatten(1)
