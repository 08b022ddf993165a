"""Mixed precision on the CPU: every network trains with every defence in bf16; fp16 needs a GPU (`test_cuda.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sweetspot.lightning_modules.defences.defence import release_of
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.runs.config import TrainConfig
from sweetspot.training import train
from tests.devices.training import DEFENCES, EVERY_PAIR, RELEASES, Steps, built


def trained_in_bf16(steps: Steps) -> None:
    """Take two steps, and look at what came of them."""
    before = {name: each.clone() for name, each in steps.module.network.named_parameters()}
    for number in range(2):
        assert steps.take(number, torch.bfloat16).isfinite()
    after = dict(steps.module.network.named_parameters())
    assert all(each.isfinite().all() and each.dtype == torch.float32 for each in after.values())
    assert any(not torch.equal(before[name], each) for name, each in after.items())


@pytest.mark.parametrize(("network", "defence"), EVERY_PAIR)
def test_a_defence_trains_in_bf16(network: str, defence: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained_in_bf16(Steps(built(network, tmp_path, **DEFENCES[defence]), "cpu"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("network", ["lenet", "gpt2-tiny"])
def test_a_release_trains_in_bf16(network: str, release: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained_in_bf16(Steps(built(network, tmp_path, release=RELEASES[release]), "cpu"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("size", [0.0, 300.0])
def test_a_release_of_fp16_is_finite(release: str, size: float) -> None:
    """Dead representations, and such whose squares fp16 has no number for; a dead one's gradient may be too large."""
    z = torch.full((4, 6), size, dtype=torch.float16, requires_grad=True)
    sent = Chain(*(release_of(each) for each in RELEASES[release]))(z)
    assert sent.dtype == torch.float16
    assert sent.isfinite().all()
    (gradient,) = torch.autograd.grad(sent.float().sum(), z)
    assert size == 0 or gradient.isfinite().all()


def test_a_run_in_bf16(config: Callable[..., TrainConfig]) -> None:
    trainer = {"accelerator": "cpu", "precision": "bf16-mixed", "gradient_clip_val": 1.0}
    results = train(config(trainer=trainer, defence="mixcon", optimiser="adam", epochs=1, out=config().out))
    assert 0 <= results["utility"]["accuracy"] <= 1
