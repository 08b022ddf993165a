"""The decoder of positions: what is given away by *which* entries a release left in, whatever their values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from sweetspot.attacks.decoder.attack import Decoder
from sweetspot.attacks.threat_model import ATTACKS, AttackerData, Reconstruction, Victim
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.releases import Chain, Clip, Release


@ATTACKS("positions")
class Positions(Decoder):
    """A decoder, trained like any other, that sees only which entries are not 0."""

    recipes = usual = ()
    options = {}  # it has no GAN

    @property
    def kinds(self) -> list[str]:
        return ["inverse"]

    @property
    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "seed": self.seed}

    def fits(self, victim: Victim) -> bool:
        """Whether the release leaves entries out, and nothing after it fills their places."""
        releases = victim.release.releases() if isinstance(victim.release, Chain) else [victim.release]
        last = next((each for each in reversed(releases) if not isinstance(each, Clip)), None)
        return isinstance(last, Release) and last.leaves_out

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if not self.fits(victim):
            raise UserError("the positions attack needs a release that leaves entries out, such as topk or dropout")
        super().prepare(seen_by_position(victim), data)

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        found = super().reconstruct(seen_by_position(victim), positions(z))
        return replace(found, residual=victim.residual(found.x, z))


def positions(z: Tensor) -> Tensor:
    """1 where an entry is there, 0 where it is not; what is no number stays so."""
    return (z != 0).to(z.dtype) + 0 * z


def seen_by_position(victim: Victim) -> Victim:
    """The same victim, of whose answers only the positions are seen."""
    return replace(victim, release=lambda z: positions(victim.release(z)))
