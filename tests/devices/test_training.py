"""A training step of every network with every defence on a second device: nothing stays behind, and no step waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweetspot.lightning_modules.defences import PENALTIES
from sweetspot.lightning_modules.defences import RELEASES as EVERY_RELEASE
from tests.devices.second_device import SecondDevice, is_marked
from tests.devices.training import DEFENCES, EVERY_PAIR, RELEASES, Steps, built


def trained(network: str, folder: Path, augment: list[str] | None = None, **parts: Any) -> None:
    """Take two steps, the last of an epoch among them, and look at every number that the module keeps."""
    module = built(network, folder, augment, **parts)
    with SecondDevice() as second:
        steps = Steps(module, second.device)
        for number in range(2):
            with second.watched() as waits:
                loss = steps.take(number)
            assert not waits, f"step {number} waits: {waits}"
        assert is_marked(loss)
        assert loss.isfinite().item()
        kept = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        assert all(map(is_marked, kept.values())), [name for name, each in kept.items() if not is_marked(each)]
        assert is_marked(module.sums["train"].total(second.device))
        assert is_marked(module.sums["train"].penalty_range())


def test_every_part_is_here() -> None:
    assert set(PENALTIES) == {name.split()[0] for name in DEFENCES}
    assert set(EVERY_RELEASE) <= set(RELEASES)


@pytest.mark.parametrize(("network", "defence"), EVERY_PAIR)
def test_a_training_step_stays_on_its_device(network: str, defence: str, tmp_path: Path) -> None:
    trained(network, tmp_path, **DEFENCES[defence])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("network", ["lenet", "gpt2-tiny"])
def test_a_release_stays_on_its_device(network: str, release: str, tmp_path: Path) -> None:
    trained(network, tmp_path, release=RELEASES[release])
