"""Releases by name: gaussian, laplace, dropout, topk, quantise, clip, a user's own, and chains of them."""

from lightning_modules.defences.releases.base import RELEASES, Chain, Release
from lightning_modules.defences.releases.coarse import Clip, Quantise
from lightning_modules.defences.releases.noise import Gaussian, Laplace, Noise
from lightning_modules.defences.releases.sparse import Dropout, TopK

__all__ = ["RELEASES", "Chain", "Clip", "Dropout", "Gaussian", "Laplace", "Noise", "Quantise", "Release", "TopK"]
