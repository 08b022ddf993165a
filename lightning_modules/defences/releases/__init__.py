"""Releases by name: noise, sparse, coarse and low-precision ones, a user's own, and chains of them."""

from lightning_modules.defences.releases.base import RELEASES, Chain, Release
from lightning_modules.defences.releases.channels import channel_name, channel_release
from lightning_modules.defences.releases.coarse import Clip, Quantise
from lightning_modules.defences.releases.noise import Gaussian, Laplace, Noise
from lightning_modules.defences.releases.precision import Bf16, Fp16, Int8
from lightning_modules.defences.releases.sparse import Dropout, TopK

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
