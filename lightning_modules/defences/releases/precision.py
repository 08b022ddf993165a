"""Releases that send every number in fewer bits, as channels do: fp16, bf16, int8."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Release, features, in_single


class Precision(Release):
    """Every entry rounded to what a format can say. Gradients pass as if nothing had been rounded."""

    def forward(self, z: Tensor) -> Tensor:
        straight_through: Tensor = self.rounded(z.detach()) + (z - z.detach())  # exactly the rounded value
        return straight_through

    def rounded(self, z: Tensor) -> Tensor:
        """z (B, …) in the format."""
        return z


class FloatingPoint(Precision):
    """Entries as floating-point numbers of 16 bits."""

    dtype: ClassVar[torch.dtype] = torch.float32

    def rounded(self, z: Tensor) -> Tensor:
        return z.to(self.dtype).to(z.dtype)


@RELEASES("fp16")
class Fp16(FloatingPoint):
    """11 bits of precision, 5 of range."""

    dtype = torch.float16


@RELEASES("bf16")
class Bf16(FloatingPoint):
    """8 bits of precision, 8 of range."""

    dtype = torch.bfloat16


@RELEASES("int8")
class Int8(Precision):
    """Whole numbers from −127 to 127, with one scale an answer, by its largest entry."""

    def rounded(self, z: Tensor) -> Tensor:
        scale = in_single(z).abs().amax(dim=features(z), keepdim=True).clamp_min(1e-12) / 127
        return ((z / scale).round().clamp(-127, 127) * scale).to(z.dtype)
