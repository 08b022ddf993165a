"""Release: what really leaves the client, in training, in utility and in every attack, drawn anew for every query."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.part import Part
from sweetspot.registries import RELEASES as RELEASES


class Release(Part):
    """The base of every release; by itself it lets everything through."""

    random: ClassVar[bool] = False  # whether two queries for one input get two answers
    growing = False  # whether it is not yet as strong as it will be
    leaves_out: ClassVar[bool] = False  # whether entries are left out, 0 in their place
    power: ClassVar[float] = 2.0  # of a difference, that `misfit` is

    @property
    def noise(self) -> float:
        """The standard deviation of what is added to an entry at random."""
        return 0.0

    def forward(self, z: Tensor) -> Tensor:
        """What leaves the client of z (B, …)."""
        return z

    def expected(self, z: Tensor) -> Tensor:
        """What leaves the client without what is drawn at random: an attacker who knows the release explains that."""
        return self.forward(z)

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        """How badly each entry of z explains what was seen of it, (B, …) × (B, …) → (B, …): what attackers minimise.

        At least 0, differentiable in z, and up to a factor the negative log-likelihood: a difference to the `power`.
        """
        return (self.expected(z) - seen).square()

    def unavoidable(self, before: float = 0.0) -> float:
        """The mean misfit of an entry of the true z; to explain more than that is to explain noise.

        Args:
            before: the standard deviation of noise that other releases added before.
        """
        return self.noise**2 + before**2

    def at(self, progress: float) -> None:
        """Told before every epoch which part of the training is done, in [0, 1]; 1 ever after."""


class Chain(nn.Sequential):
    """Releases one after the other; none of them lets everything through."""

    def __init__(self, *releases: nn.Module) -> None:
        super().__init__(*releases)
        self.watched: dict[int, Tensor] = {}  # by place, the largest change of an entry that was seen

    def watch(self, z: Tensor) -> Tensor:
        """What leaves the client, as ever, while it is noted how much each release changes."""
        for place, each in enumerate(self):
            answer = each(z)
            if not (isinstance(each, Release) and each.growing):
                change = (answer - z).detach().abs().amax()
                self.watched[place] = torch.maximum(change, self.watched.get(place, change))
            z = answer
        return z

    def idle(self) -> Release | None:
        """The first release that was watched and never changed anything."""
        names = self.releases()
        return next((names[place] for place, change in self.watched.items() if not change > 0), None)

    def releases(self) -> list[Release]:
        """The releases in order."""
        return [each for each in self if isinstance(each, Release)]

    def expected(self, z: Tensor) -> Tensor:
        """What leaves the client without what is drawn at random."""
        for each in self.releases():
            z = each.expected(z)
        return z

    @property
    def power(self) -> float:
        """Of a difference, that `misfit` is."""
        return self.releases()[-1].power if len(self) else Release.power

    def misfit(self, z: Tensor, seen: Tensor) -> Tensor:
        """How badly each entry of z explains what was seen of it: the last release's own, behind the others' expected.

        Only of the last release the answer itself was seen.
        """
        if not len(self):
            return (z - seen).square()
        *before, last = self.releases()
        for each in before:
            z = each.expected(z)
        return last.misfit(z, seen)

    def unavoidable(self) -> float:
        """The mean misfit of an entry of the true z."""
        if not len(self):
            return 0.0
        *before, last = self.releases()
        return last.unavoidable(math.hypot(*(each.noise for each in before)))

    @property
    def is_random(self) -> bool:
        """Whether two queries for one input get two answers."""
        return any(each.random for each in self.releases())

    @property
    def noise(self) -> float:
        """The standard deviation of what is added to an entry at random, all releases together."""
        return math.hypot(*(each.noise for each in self.releases()))

    def at(self, progress: float) -> None:
        """Told how much of the training is done, in [0, 1]."""
        for each in self.releases():
            each.at(progress)


def features(z: Tensor) -> tuple[int, ...]:
    """The dimensions of one answer: all but the first; of a sequence (B, T, d) the last, a position at a time.

    Example:
        >>> import torch
        >>> features(torch.zeros(2, 16, 5, 5)), features(torch.zeros(2, 7, 64))
        ((1, 2, 3), (2,))
    """
    return (2,) if z.ndim == 3 else tuple(range(1, z.ndim))


def unit_rms(z: Tensor) -> Tensor:
    """z with root mean square 1 in every answer: noise of a given σ cannot be undone by a larger z."""
    mean = in_single(z).square().mean(dim=features(z), keepdim=True)
    return (z * mean.clamp_min(1e-12).rsqrt()).to(z.dtype)  # finite gradients at 0


def in_single(z: Tensor) -> Tensor:
    """z in single precision, if it has less: the square of 300 is no number in fp16, and 1e-12 is 0."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
