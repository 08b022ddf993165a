"""Penalties, releases and attacks by name. They need torch, and are loaded when one is looked up, not when listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweetspot.registry import RoomRegistry

if TYPE_CHECKING:
    from sweetspot.attacks.threat_model import Attack
    from sweetspot.lightning_modules.defences.penalties.base import Penalty
    from sweetspot.lightning_modules.defences.releases.base import Release

DEFENCES = "sweetspot.lightning_modules.defences"
PENALTIES: RoomRegistry[Penalty] = RoomRegistry("defence", f"{DEFENCES}.penalties", "Penalty", "PENALTIES")
RELEASES: RoomRegistry[Release] = RoomRegistry("release", f"{DEFENCES}.releases", "Release", "RELEASES")
ATTACKS: RoomRegistry[Attack] = RoomRegistry("attack", "sweetspot.attacks", "Attack", "ATTACKS")
