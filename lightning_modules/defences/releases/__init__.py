"""Releases by name: noise, sparse, coarse and low-precision ones, a user's own, and chains of them."""

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Chain, Release
from sweetspot.lightning_modules.defences.releases.channels import channel_name, channel_release
from sweetspot.lightning_modules.defences.releases.coarse import Clip, Quantise
from sweetspot.lightning_modules.defences.releases.noise import Gaussian, Laplace, Noise
from sweetspot.lightning_modules.defences.releases.precision import Bf16, Fp16, Int8
from sweetspot.lightning_modules.defences.releases.sparse import Dropout, TopK

__all__ = [
    "RELEASES",
    "Bf16",
    "Chain",
    "Clip",
    "Dropout",
    "Fp16",
    "Gaussian",
    "Int8",
    "Laplace",
    "Noise",
    "Quantise",
    "Release",
    "TopK",
    "channel_name",
    "channel_release",
]
