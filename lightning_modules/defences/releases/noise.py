"""Additive noise: gaussian and laplace.

σ and b mean something only against the scale of z. With a penalty that sets the scale itself (compress, vib) z is
released as it is; otherwise every answer is scaled to unit root mean square first. `unit` says which it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Release, unit_rms
from sweetspot.options import option

RAMP = 1 / 3  # of the training until noise is whole: from the first step on it can keep a network from learning
UNITS = ("rms", "raw")


class Noise(Release, ABC):
    """Noise of one size on every entry. A subclass draws it, and says its standard deviation as `noise`."""

    random = True
    unit: str = option("rms", "what noise is measured in: rms (every answer is scaled to it), or raw", choices=UNITS)
    ramp: float = option(RAMP, "the part of the training during which noise grows to its full size", least=0, most=1)

    def __init__(self, **given: object) -> None:
        super().__init__(**given)
        self.share = 1.0  # of the full size

    def at(self, progress: float) -> None:
        self.share = 1.0 if progress >= self.ramp else progress / self.ramp

    @property
    def growing(self) -> bool:  # type: ignore[override]
        return self.share < 1

    def expected(self, z: Tensor) -> Tensor:
        return unit_rms(z) if self.unit == "rms" else z

    def forward(self, z: Tensor) -> Tensor:
        z = self.expected(z)
        return z + self.share * self.drawn(z)

    @abstractmethod
    def drawn(self, z: Tensor) -> Tensor:
        """Noise of full size, shaped as z."""


@RELEASES("gaussian")
class Gaussian(Noise):
    """z + σ·N(0, 1)."""

    sigma: float = option(0.5, "σ, the standard deviation of the noise", above=0)

    @property
    def noise(self) -> float:
        return self.sigma

    def drawn(self, z: Tensor) -> Tensor:
        return self.sigma * torch.randn_like(z)


@RELEASES("laplace")
class Laplace(Noise):
    """z + noise of density exp(−|·|/b)/2b, whose variance is 2b²."""

    power = 1.0
    scale: float = option(0.5, "b, the scale of the noise", above=0)

    @property
    def noise(self) -> float:
        return 2**0.5 * self.scale

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        return (self.expected(z) - seen).abs()

    def unavoidable(self, before: float = 0.0) -> float:
        return self.scale + before

    def drawn(self, z: Tensor) -> Tensor:
        one, other = torch.empty_like(z).exponential_(), torch.empty_like(z).exponential_()
        return self.scale * (one - other)  # the difference of two exponentials is a Laplace
