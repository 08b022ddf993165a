"""Refined: never worse than its decoder on held-out inputs, better where z says more; and the decoder of positions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sweetspot.attacks.decoder.attack as decoder_attack
import sweetspot.attacks.refined as refined
from sweetspot.attacks import AttackerData, Decoder, Positions, Refined, Victim
from sweetspot.attacks.descent import Descent
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.releases import RELEASES, Chain
from sweetspot.lightning_modules.split_module import SplitModule
from tests.attacks.test_decoder import squares
from tests.weak_attacks import shrink_decoders


@pytest.fixture
def data() -> AttackerData:
    return AttackerData(squares(200, seed=0), torch.zeros(200, dtype=torch.long))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast attacker who is faster still."""
    shrink_decoders(monkeypatch)
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 30)
    monkeypatch.setitem(refined.STEPS, "fast", 40)
    monkeypatch.setitem(refined.TRIALS, "fast", 8)


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests that ask for the same decoder find it trained."""
    return tmp_path_factory.mktemp("decoders")


def victim_with(**release: object) -> Victim:
    torch.manual_seed(0)
    return Victim.from_module(SplitModule("lenet", [1, 28, 28], 2, cut="conv1", release=[release] if release else []))


@pytest.mark.parametrize("release", [{}, {"name": "gaussian", "sigma": 0.05}, {"name": "quantise", "bits": 6}], ids=str)
def test_it_recovers_more_than_its_decoder(release: dict[str, object], data: AttackerData, decoders: Path) -> None:
    victim, new = victim_with(**release), squares(10, seed=1)
    attack = Refined(budget="fast", cache=decoders)
    attack.prepare(victim, data)
    torch.manual_seed(5)
    z = victim.released(new)
    decoded = attack.decoder.reconstruct(victim, z)
    found = attack.reconstruct(victim, z)
    assert (found.x - new).abs().mean() < 0.8 * (decoded.x - new).abs().mean()
    assert (found.residual < decoded.residual).all()
    assert (found.x.min() >= 0) & (found.x.max() <= 1)


def test_on_held_out_inputs_it_is_never_worse_than_the_decoder(
    data: AttackerData, decoders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = victim_with()
    attack = Refined(budget="fast", cache=decoders)
    attack.prepare(victim, data)
    assert attack.held_out[f"{attack.pull:g}"] == min(attack.held_out.values()) < attack.held_out["inf"]

    z = victim.released(squares(3, seed=1))
    truth = iter(range(10**6))

    def by_chance(answers: Tensor) -> Tensor:  # better on a few inputs, worse on the others
        return answers + 0.05 * (0.5 - answers) * (-1.0) ** (next(truth) + torch.arange(len(answers)).view(-1, 1, 1, 1))

    for astray in (lambda answers: 1 - answers, lambda answers: answers * torch.nan, by_chance):
        monkeypatch.setattr(Refined, "refine", lambda _, __, ___, answers, *____, astray=astray: (astray(answers), 40))
        attack.prepare(victim, data)
        assert attack.pull == math.inf
        assert torch.equal(attack.reconstruct(victim, z).x, attack.decoder.reconstruct(victim, z).x)


def test_what_is_attacked_has_no_say_in_how(data: AttackerData, decoders: Path) -> None:
    """The same input gets the same answer whatever is attacked beside it, up to rounding."""
    victim, new = victim_with(), squares(4, seed=1)
    attack = Refined(budget="fast", cache=decoders)
    attack.prepare(victim, data)
    z = victim.released(new)
    alone = torch.cat([attack.reconstruct(victim, one[None]).x for one in z])
    torch.testing.assert_close(attack.reconstruct(victim, z).x, alone, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("release", [{}, {"name": "dropout", "drop": 0.3}], ids=str)
def test_same_seed_same_bits_with_the_decoder_of_the_decoder_attack(
    release: dict[str, object], data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 5)
    monkeypatch.setitem(refined.STEPS, "fast", 10)
    victim = victim_with(**release)
    torch.manual_seed(5)
    z = victim.released(squares(3, seed=1))
    first = Refined(None, "fast", 3)
    first.prepare(victim, data)
    torch.manual_seed(3)
    Decoder("adaptive", "fast", 3, tmp_path).prepare(victim, data)
    monkeypatch.setattr(decoder_attack, "train_decoder", None)  # whoever trains again fails
    second = Refined(None, "fast", 3, tmp_path)
    second.prepare(victim, data)
    assert torch.equal(first.reconstruct(victim, z).x, second.reconstruct(victim, z).x)
    assert first.held_out == second.held_out


def test_a_decoder_that_says_black_is_sure_and_one_that_says_grey_is_not() -> None:
    answers = torch.tensor([0.001, 0.5, 0.999]).view(1, 3, 1, 1).expand(100, 3, 20, 20)
    x = (torch.rand(answers.shape, generator=torch.Generator().manual_seed(0)) < answers).float()
    error = refined.expected_error(answers, x)
    black, grey, white = error[refined.bins_of(torch.tensor([0.001, 0.5, 0.999]))].tolist()
    assert grey == pytest.approx(0.5, rel=0.01)
    assert max(black, white) < 0.1
    assert (error > 0).all(), "a pixel that was always right may still move"
    assert refined.bins_of(torch.tensor([0.0, 1.0])).tolist() == [0, refined.BINS - 1]
    by_entry = refined.expected_error(torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 3.0], [1.0, 0.0, 3.0]]))
    assert by_entry.tolist() == pytest.approx([1.0, refined.LEAST, 3.0])


def test_vectors_are_refined_too() -> None:
    torch.manual_seed(0)
    encoder = nn.Linear(10, 10)
    nn.init.orthogonal_(encoder.weight)
    victim = Victim(encoder.requires_grad_(False), nn.Identity(), lambda z: z, (10,), 2, None)
    own, new = torch.randn(300, 10), torch.randn(5, 10)
    attack = Refined(budget="fast")
    attack.prepare(victim, AttackerData(own, torch.zeros(300, dtype=torch.long)))
    decoded = attack.decoder.reconstruct(victim, encoder(new))
    found = attack.reconstruct(victim, encoder(new))
    assert (found.x - new).square().mean() < 0.5 * (decoded.x - new).square().mean()


def test_ctrl_c_gives_the_best_so_far(data: AttackerData, decoders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = victim_with()
    attack = Refined(budget="fast", cache=decoders)
    attack.prepare(victim, data)
    descend, z = Descent.descend, victim.released(squares(2, seed=1))

    def ctrl_c(self: Descent, step: int, steps: int) -> None:
        if step == 20:
            raise KeyboardInterrupt
        descend(self, step, steps)

    monkeypatch.setattr(Descent, "descend", ctrl_c)
    stopped = attack.reconstruct(victim, z)
    assert (stopped.trace["steps"], stopped.trace["of"]) == (19, 40)
    assert (stopped.residual < attack.decoder.reconstruct(victim, z).residual).all()
    with pytest.raises(KeyboardInterrupt):  # what is chosen on half a trial would be another attack
        attack.prepare(victim, data)


def test_its_settings_tell_its_decoders_apart(tmp_path: Path) -> None:
    assert Refined(None, "normal", 1, tmp_path).settings == {"networks": ["inverse"], "budget": "normal", "seed": 1}
    (tmp_path / "decoder-gan-7-1-0.pt").touch()
    with_gan = Refined(None, "normal", 1, tmp_path, decoder_epochs=7).settings
    assert (with_gan["networks"], with_gan["epochs"]) == (["inverse", "gan"], 7)


@pytest.mark.parametrize("attack", [Refined(), Positions()], ids=repr)
def test_what_cannot_work_is_refused(attack: Refined | Positions) -> None:
    victim = victim_with(name="topk", keep=0.1)
    with pytest.raises(UserError, match="needs inputs of the attacker's own"):
        attack.prepare(victim, None)
    with pytest.raises(UserError, match="must be prepared"):
        attack.reconstruct(victim, torch.zeros(1, 16, 5, 5))


# ---------------------------------------------------------------------- positions


def test_positions_fit_where_entries_are_left_out() -> None:
    victim = victim_with()

    def fits(*names: str) -> bool:
        return Positions().fits(replace(victim, release=Chain(*(RELEASES[name]() for name in names))))

    assert fits("topk")
    assert fits("dropout")
    assert fits("dropout", "clip")
    assert not fits()
    assert not fits("quantise")
    assert not fits("topk", "gaussian"), "noise fills the gaps"
    assert not Positions().fits(replace(victim, release=lambda z: z))
    assert Refined().fits(victim)
    with pytest.raises(UserError, match="leaves entries out"):
        Positions().prepare(victim, None)


def test_positions_alone_give_the_input_away_and_values_are_not_looked_at(data: AttackerData) -> None:
    victim, new = victim_with(name="topk", keep=0.2), squares(20, seed=1)
    attack = Positions(budget="fast")
    attack.prepare(victim, data)
    z = victim.released(new)
    found = attack.reconstruct(victim, z)
    blank = (data.x.mean(dim=0) - new).abs().mean()
    assert (found.x - new).abs().mean() < 0.8 * blank
    assert torch.equal(attack.reconstruct(victim, -3 * z).x, found.x)
    torch.testing.assert_close(found.residual, victim.residual(found.x, z))
