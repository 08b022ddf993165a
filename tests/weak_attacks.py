"""Attacks of a few steps, for tests of everything but their strength."""

from __future__ import annotations

import lpips
import pytest
import torch

import sweetspot.attacks.decoder.attack as decoder_attack
import sweetspot.attacks.refined as refined_attack
import sweetspot.evaluations.images as images
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.single_commit import OPERATING_POINTS
from sweetspot.attacks.whitebox import STEPS


def weaken(patch: pytest.MonkeyPatch) -> None:
    """Attacks of a few steps, and LPIPS with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False).eval().requires_grad_(False)
    patch.setattr(images, "perceptual_network", lambda: network)
    patch.setattr("sweetspot.attacks.whitebox.PAPER_STEPS", 5)
    patch.setattr("sweetspot.metrics.classifier.STEPS", 5)
    patch.setitem(OPERATING_POINTS, "fast", {"loop": InnerLoop(steps=30), "candidates": 20})
    for budget in STEPS:
        patch.setitem(STEPS, budget, 5)
        patch.setitem(decoder_attack.STEPS, budget, 3)
        patch.setitem(refined_attack.STEPS, budget, 3)
        patch.setitem(refined_attack.TRIALS, budget, 4)
    images.perceptual_or_none.cache_clear()
