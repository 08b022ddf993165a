"""Defences: a penalty while training, a bottleneck before anything leaves, a release that is what leaves."""

from lightning_modules.defences.bottlenecks import Bottleneck
from lightning_modules.defences.defence import Defence
from lightning_modules.defences.options import Option, Part, option
from lightning_modules.defences.penalties import PENALTIES, Penalty
from lightning_modules.defences.releases import RELEASES, Release

__all__ = ["PENALTIES", "RELEASES", "Bottleneck", "Defence", "Option", "Part", "Penalty", "Release", "option"]
