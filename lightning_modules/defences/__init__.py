"""Defences by name: none, mixcon, unicon."""

from lightning_modules.defences.base import Defence, Release
from lightning_modules.defences.mixcon import PENALTY_FAMILY, MixCon, mixcon_loss
from lightning_modules.defences.unicon import UniCon, unicon_loss

DEFENCES: dict[str, type[Defence]] = {defence.name: defence for defence in (Defence, MixCon, UniCon)}

__all__ = ["DEFENCES", "PENALTY_FAMILY", "Defence", "MixCon", "Release", "UniCon", "mixcon_loss", "unicon_loss"]
