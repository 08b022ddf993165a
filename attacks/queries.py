"""An attacker who asks several times for the same input: fresh noise in every answer, and the answers' mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from sweetspot.attacks.threat_model import Victim
from sweetspot.lightning_modules.defences.releases import Release


class Averaged(Release):
    """The mean of k answers of a release: additive noise has a standard deviation of σ/√k in it.

    Of many answers the mean is nearly Gaussian, whatever each of them is, so squared errors are the right ones.

    Args:
        release: of the victim.
        queries: k.
    """

    random = True

    def __init__(self, release: Callable[[Tensor], Tensor], queries: int) -> None:
        super().__init__()
        self.release, self.queries = release, queries

    def forward(self, z: Tensor) -> Tensor:
        total = self.release(z)
        for _ in range(self.queries - 1):  # k answers side by side would take k times the memory
            total = total + self.release(z)
        return total / self.queries

    def expected(self, z: Tensor) -> Tensor:
        """The answer without what is drawn at random."""
        answer: Tensor = getattr(self.release, "expected", self.release)(z)
        return answer

    @property
    def noise(self) -> float:
        """The standard deviation of what is left of additive noise."""
        return float(getattr(self.release, "noise", 0.0)) / math.sqrt(self.queries)


def asked_often(victim: Victim, queries: int) -> Victim:
    """The same victim for an attacker who averages so many answers."""
    return victim if queries == 1 else replace(victim, release=Averaged(victim.release, queries))
