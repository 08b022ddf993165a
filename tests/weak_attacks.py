"""Attacks of a few steps by small networks, for tests of everything but their strength."""

from __future__ import annotations

import functools

import lpips
import pytest
import torch

import sweetspot.attacks.decoder.attack as decoder_attack
import sweetspot.attacks.refined as refined_attack
import sweetspot.evaluations.images as images
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.single_commit import OPERATING_POINTS
from sweetspot.attacks.whitebox import STEPS


@functools.cache
def random_lpips() -> lpips.LPIPS:
    """LPIPS with random weights: it has no download to wait for, and is made once."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lpips.LPIPS(net="alex", pnet_rand=True, verbose=False).eval().requires_grad_(False)


def shrink_decoders(patch: pytest.MonkeyPatch, hidden: int = 256, coarse: int = 32, batch: int = 32) -> None:
    """Decoders and batches that are small: what is tested is not how large they are."""
    patch.setattr("sweetspot.attacks.decoder.networks.HIDDEN", hidden)
    patch.setattr("sweetspot.attacks.decoder.networks.COARSE", coarse)
    patch.setattr("sweetspot.attacks.decoder.training.BATCH", batch)


def weaken(patch: pytest.MonkeyPatch, with_lpips: bool = True) -> None:
    """Attacks of a few steps by small networks, and LPIPS with random weights, or without it."""
    own_cache = functools.cache(images.perceptual_or_none.__wrapped__)  # no other test finds these weights in it
    patch.setattr(images, "perceptual_or_none", own_cache if with_lpips else lambda _: None)
    patch.setattr(images, "perceptual_network", random_lpips)
    shrink_decoders(patch, hidden=32, coarse=8)
    patch.setattr("sweetspot.attacks.whitebox.PAPER_STEPS", 5)
    patch.setattr("sweetspot.evaluations.classifier.STEPS", 5)
    patch.setitem(OPERATING_POINTS, "fast", {"loop": InnerLoop(steps=30), "candidates": 20})
    for budget in STEPS:
        patch.setitem(STEPS, budget, 5)
        patch.setitem(decoder_attack.STEPS, budget, 3)
        patch.setitem(refined_attack.STEPS, budget, 3)
        patch.setitem(refined_attack.TRIALS, budget, 4)
