"""Every attack with victim, data and released z on a second device, and what of it makes the host wait."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import sweetspot.attacks.decoder.attack as decoder
import sweetspot.attacks.decoder.networks as networks
import sweetspot.attacks.refined as refined
from sweetspot.attacks import ATTACKS, whitebox
from sweetspot.attacks.queries import asked_often
from sweetspot.attacks.threat_model import AttackerData, LabelOnly, Victim
from sweetspot.datamodules.tensors import scaled
from tests.devices.second_device import SecondDevice, Wait, is_marked
from tests.devices.training import RELEASES, built, data_for

# what each attack is run on, each time by another network and release
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "whitebox/paper": ("lenet", "none", {"recipe": "paper"}),
    "whitebox/paper on vectors": ("mlp", "none", {"recipe": "paper"}),
    "whitebox/no-data": ("foreign", "topk", {"recipe": "no-data"}),
    "whitebox/adaptive": ("lenet", "none", {"recipe": "adaptive"}),
    "whitebox/adaptive behind noise": ("lenet", "gaussian", {"recipe": "adaptive"}),
    "whitebox/adaptive behind Laplace noise": ("lenet", "laplace", {"recipe": "adaptive"}),
    "whitebox/adaptive on vectors": ("mlp", "quantise", {"recipe": "adaptive"}),
    "whitebox/adaptive averaged": ("lenet", "dropout", {"recipe": "adaptive"}),
    "decoder/adaptive": ("lenet", "none", {"recipe": "adaptive"}),
    "decoder/paper": ("lenet", "clip", {"recipe": "paper"}),
    "label": ("lenet", "none", {}),
    "refined": ("lenet", "none", {}),
    "refined behind noise": ("lenet", "gaussian", {}),
    "refined on vectors": ("mlp", "none", {}),
    "positions": ("lenet", "topk", {}),
    "prototype": ("lenet", "none", {}),
}
SLOW = ("refined behind noise", "refined on vectors")


def attacked(case: str, steps: int, folder: Path, patch: pytest.MonkeyPatch) -> list[Wait]:
    """Run an attack with everything on a second device, check where its answers lie, and say where it waits."""
    patch.setattr(whitebox, "PAPER_STEPS", steps)
    for each in (whitebox.STEPS, decoder.STEPS, refined.STEPS):
        patch.setitem(each, "fast", steps)
    patch.setitem(whitebox.TRIED, "fast", 4)
    patch.setattr(networks, "HIDDEN", 32)
    patch.setattr(networks, "COARSE", 8)
    patch.setattr(refined, "CERTAIN", math.inf)  # what it chooses decides how many descents there are
    network, release, given = CASES[case]
    with SecondDevice() as second:
        module = built(network, folder, release=RELEASES.get(release, []))
        data = AttackerData.of(data_for(module, 40))
        victim = Victim.from_module(module).to(second.device)
        if case.endswith("averaged"):
            victim = asked_often(victim, 3)
        if case == "decoder/paper":
            given = given | {"decoder_epochs": steps}
        attack = ATTACKS[case.split("/")[0].split()[0]](budget="fast", **given)
        with torch.no_grad():
            z = victim.released(scaled(data.x[:3]).to(second.device))
        classes = data.y[:3].to(second.device)
        with second.watched() as waits:
            attack.prepare(victim, data)
            if isinstance(attack, LabelOnly):
                attack.tell(classes)
            found = attack.reconstruct(victim, z)
        assert is_marked(found.x)
        assert is_marked(found.residual)
        assert found.x.isfinite().all()
    return waits


def test_every_attack_is_here() -> None:
    assert {case.split("/")[0].split()[0] for case in CASES} == set(ATTACKS)


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES])
def test_an_attack_stays_on_its_device_and_no_step_of_it_waits(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait before and after its steps, for each descent once: as often for three steps as for two."""
    few, more = (attacked(case, steps, tmp_path, monkeypatch) for steps in (2, 3))
    assert Counter(more) == Counter(few), Counter(more) - Counter(few)
