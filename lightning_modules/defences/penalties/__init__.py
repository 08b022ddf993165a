"""Penalties by name: none, mixcon, unicon, nopeek, adversary, compress, vib, cem, and a user's own."""

from sweetspot.lightning_modules.defences.penalties.adversary import Adversary
from sweetspot.lightning_modules.defences.penalties.base import PENALTIES, Penalty, Place
from sweetspot.lightning_modules.defences.penalties.cem import CEM, cem_loss
from sweetspot.lightning_modules.defences.penalties.compress import VIB, Compress, compression, gaussian_kl
from sweetspot.lightning_modules.defences.penalties.mixcon import PENALTY_FAMILY, MixCon, mixcon_loss
from sweetspot.lightning_modules.defences.penalties.nopeek import NoPeek, distance_correlation
from sweetspot.lightning_modules.defences.penalties.unicon import UniCon, unicon_loss

__all__ = [
    "CEM",
    "PENALTIES",
    "PENALTY_FAMILY",
    "VIB",
    "Adversary",
    "Compress",
    "MixCon",
    "NoPeek",
    "Penalty",
    "Place",
    "UniCon",
    "cem_loss",
    "compression",
    "distance_correlation",
    "gaussian_kl",
    "mixcon_loss",
    "unicon_loss",
]
