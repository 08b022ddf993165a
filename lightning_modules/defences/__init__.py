"""Defences: a penalty while training, a bottleneck before anything leaves, a release that is what leaves."""

from lightning_modules.defences.bottlenecks import Bottleneck
from lightning_modules.defences.defence import Defence
from lightning_modules.defences.part import Part
from lightning_modules.defences.penalties import PENALTIES, Penalty
from lightning_modules.defences.releases import RELEASES, Release
from options import Option, option

__all__ = ["PENALTIES", "RELEASES", "Bottleneck", "Defence", "Option", "Part", "Penalty", "Release", "option"]
