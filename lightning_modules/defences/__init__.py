"""Defences: a penalty while training, a bottleneck before anything leaves, a release that is what leaves."""

from sweetspot.lightning_modules.defences.bottlenecks import Bottleneck
from sweetspot.lightning_modules.defences.defence import Defence
from sweetspot.lightning_modules.defences.part import Part
from sweetspot.lightning_modules.defences.penalties import PENALTIES, Penalty
from sweetspot.lightning_modules.defences.releases import RELEASES, Release
from sweetspot.options import Option, option

__all__ = ["PENALTIES", "RELEASES", "Bottleneck", "Defence", "Option", "Part", "Penalty", "Release", "option"]
