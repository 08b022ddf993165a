"""Releases that make an answer coarser or smaller: quantise and clip."""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Release, features, in_single
from sweetspot.options import option


@RELEASES("quantise")
class Quantise(Release):
    """Every answer on 2^bits levels, evenly from its smallest to its largest entry.

    Gradients pass as if nothing had been rounded (straight through).
    """

    bits: int = option(8, "bits an entry is sent with", least=1, most=16)

    def forward(self, z: Tensor) -> Tensor:
        with torch.no_grad():
            low, high = z.amin(dim=features(z), keepdim=True), z.amax(dim=features(z), keepdim=True)
            step = ((high - low) / (2**self.bits - 1)).clamp_min(torch.finfo(z.dtype).tiny)
            rounded = low + step * ((z - low) / step).round()
        straight_through: Tensor = rounded + (z - z.detach())  # exactly the rounded value: no digit of z comes along
        return straight_through

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        """The squared distance to the bin: 0 wherever z rounds to what was seen, the ends of its range included."""
        low, high = seen.amin(dim=features(seen), keepdim=True), seen.amax(dim=features(seen), keepdim=True)
        half = (high - low) / (2**self.bits - 1) / 2
        inside = z.detach().maximum((seen - half).maximum(low)).minimum((seen + half).minimum(high))
        return (z - inside).square()


@RELEASES("clip")
class Clip(Release):
    """Every answer with its ℓ2 norm at most C, shorter ones as they are."""

    clip: float = option(1.0, "C, the largest ℓ2 norm of an answer", above=0)

    def forward(self, z: Tensor) -> Tensor:
        norm = in_single(z).square().sum(dim=features(z), keepdim=True).clamp_min(1e-12).sqrt()  # finite gradients at 0
        return torch.where(norm > self.clip, (z * (self.clip / norm)).to(z.dtype), z)
