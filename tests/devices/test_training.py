"""A training step of every network with every defence on a second device: nothing stays behind, and no step waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torchvision.models.vgg import cfgs

from sweetspot.lightning_modules.defences import PENALTIES
from sweetspot.lightning_modules.defences import RELEASES as EVERY_RELEASE
from sweetspot.lightning_modules.networks import vgg
from tests.devices.second_device import SecondDevice, is_marked
from tests.devices.training import DEFENCES, FOR_TEXT, FOR_VECTORS, NETWORKS, RELEASES, Steps, built


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """VGG16 with all its layers, an eighth as wide."""
    layers = [each if isinstance(each, str) else each // 8 for each in cfgs["D"]]
    monkeypatch.setitem(cfgs, "D", layers)
    monkeypatch.setattr(vgg, "WIDTH", vgg.WIDTH // 8)


def defences_for(network: str) -> tuple[str, ...]:
    """The defences that make sense for a network."""
    return {"gpt2-tiny": FOR_TEXT, "mlp": FOR_VECTORS}.get(network, tuple(DEFENCES))


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


@pytest.mark.parametrize(
    ("network", "defence"),
    [(network, defence) for network in NETWORKS for defence in defences_for(network)],
)
def test_a_training_step_stays_on_its_device(network: str, defence: str, tmp_path: Path) -> None:
    trained(network, tmp_path, **DEFENCES[defence])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("network", ["lenet", "gpt2-tiny"])
def test_a_release_stays_on_its_device(network: str, release: str, tmp_path: Path) -> None:
    trained(network, tmp_path, release=RELEASES[release])
