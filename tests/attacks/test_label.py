"""Attackers who know the label alone, and one who asks several times."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sweetspot.attacks import AttackerData, Label, Victim
from sweetspot.attacks.decoder.networks import InverseNetwork
from sweetspot.attacks.label import labels_of
from sweetspot.attacks.queries import Averaged, asked_often
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.releases import Chain, Gaussian


@pytest.fixture
def victim() -> Victim:
    return Victim(nn.Flatten(), nn.Identity(), lambda z: z, (1, 16, 16), 3, (0.0, 1.0))


@pytest.fixture
def data() -> AttackerData:
    """Three classes, each an image of its own grey with a little noise."""
    torch.manual_seed(0)
    y = torch.arange(300) % 3
    return AttackerData((0.2 + 0.3 * y.view(-1, 1, 1, 1) + 0.02 * torch.randn(300, 1, 16, 16)).clamp(0, 1), y)


def test_it_answers_with_what_the_class_alone_says(
    victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.decoder.training.BATCH", 32)
    attack = Label(budget="fast", cache=tmp_path)
    attack.prepare(victim, data)
    attack.tell(torch.tensor([2, 0, 2]))
    found = attack.reconstruct(victim, torch.rand(3, 256)).x
    assert torch.equal(found[0], found[2]), "z does not matter"
    assert found[0].mean().item() == pytest.approx(0.8, abs=0.05)
    assert found[1].mean().item() == pytest.approx(0.2, abs=0.05)


def test_what_was_trained_is_found_again_and_other_data_have_another(
    victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.label.STEPS", {"fast": 3})
    Label(budget="fast", cache=tmp_path).prepare(victim, data)
    monkeypatch.setattr(Label, "train", lambda *_: pytest.fail("it is there already"))
    Label(budget="fast", cache=tmp_path).prepare(victim, data)
    other = AttackerData(data.x, data.y.flip(0))
    names = {Label(budget="fast", cache=tmp_path).file(victim, each).name for each in (data, other)}
    assert len(names) == 2


def test_answers_of_the_classes_alone_have_the_gradient_of_a_whole_batch(victim: Victim) -> None:
    torch.manual_seed(0)
    network = InverseNetwork((3,), (1, 16, 16))
    y, x = torch.randint(3, (20,)), torch.rand(20, 1, 16, 16)
    gradients: list[list[Tensor]] = []
    for recovered in (network(labels_of(victim))[y], network(labels_of(victim)[y])):
        loss = (recovered - x).abs().mean()
        gradients.append(list(torch.autograd.grad(loss, list(network.parameters()))))
    assert all(torch.allclose(one, other, atol=1e-7) for one, other in zip(*gradients, strict=True))


def test_without_data_or_classes_it_refuses(victim: Victim, data: AttackerData) -> None:
    with pytest.raises(UserError, match="needs inputs of the attacker's own"):
        Label().prepare(victim, None)
    with pytest.raises(UserError, match="must be prepared"):
        Label().reconstruct(victim, torch.zeros(1, 256))


def test_the_mean_of_k_answers_has_noise_that_is_smaller_by_the_root_of_k(victim: Victim) -> None:
    noisy = Victim(nn.Flatten(), nn.Identity(), Chain(Gaussian(sigma=1.0, unit="raw")), (1, 16, 16), 3, None)
    assert asked_often(noisy, 1) is noisy
    often = asked_often(noisy, 25)
    assert isinstance(often.release, Averaged)
    torch.manual_seed(0)
    assert often.released(torch.zeros(200, 1, 16, 16)).std().item() == pytest.approx(0.2, rel=0.02)
    assert often.release.noise == pytest.approx(0.2)
    assert torch.equal(often.represent(torch.ones(2, 1, 16, 16)), torch.ones(2, 256))
