"""How badly a guess explains what a release let through: each release's own, by a second implementation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.descent import scale_of
from sweetspot.attacks.threat_model import norm_of
from sweetspot.attacks.whitebox import WhiteBox, best_explanation, candidates_of, explained
from sweetspot.lightning_modules.defences.releases import RELEASES, Chain, Release
from sweetspot.lightning_modules.split_module import SplitModule

EACH: list[tuple[str, dict[str, Any]]] = [
    ("gaussian", {"sigma": 0.3, "unit": "raw"}),
    ("gaussian", {"sigma": 0.3}),
    ("laplace", {"scale": 0.3}),
    ("dropout", {"drop": 0.4}),
    ("topk", {"keep": 0.25}),
    ("quantise", {"bits": 1}),
    ("quantise", {"bits": 4}),
    ("clip", {"clip": 2.0}),
]
IDS = [f"{name} {given}" for name, given in EACH]


def made(name: str, given: dict[str, Any]) -> Release:
    return RELEASES[name](**given)


def entry_by_entry(name: str, given: dict[str, Any], z: list[float], seen: list[float]) -> list[float]:
    """The misfit of one answer, in plain Python."""
    rms = (sum(v * v for v in z) / len(z)) ** 0.5
    if name in ("gaussian", "laplace"):
        scaled = z if given.get("unit") == "raw" else [v / rms for v in z]
        power = 1 if name == "laplace" else 2
        return [abs(a - b) ** power for a, b in zip(scaled, seen, strict=True)]
    if name == "dropout":
        return [(a - b) ** 2 if b else 0.0 for a, b in zip(z, seen, strict=True)]
    if name == "topk":
        kept = [abs(b) for b in seen if b]
        smallest = min(kept) if len(kept) == round(given["keep"] * len(z)) else 0.0
        return [(a - b) ** 2 if b else max(0.0, abs(a) - smallest) ** 2 for a, b in zip(z, seen, strict=True)]
    if name == "quantise":
        low, high = min(seen), max(seen)
        half = (high - low) / (2 ** given["bits"] - 1) / 2
        bins = [(max(low, b - half), min(high, b + half)) for b in seen]
        return [max(0.0, first - a, a - last) ** 2 for a, (first, last) in zip(z, bins, strict=True)]
    norm = sum(v * v for v in z) ** 0.5
    return [(a * min(1.0, given["clip"] / norm) - b) ** 2 for a, b in zip(z, seen, strict=True)]


@pytest.mark.parametrize(("name", "given"), EACH, ids=IDS)
@pytest.mark.parametrize("relu", [False, True])
def test_a_misfit_equals_the_plain_formula(name: str, given: dict[str, Any], relu: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    z, other = torch.randn(2, 6, 3, 2, 2, dtype=torch.float64, generator=generator)
    if relu:  # most entries 0, so that top-k keeps some that are
        z, other = (z - 1).relu() + 1e-3 * (z > 2.5), (other - 1).relu()
    release = made(name, given)
    torch.manual_seed(0)
    seen = release(other)
    ours = release.misfit(z, seen)
    assert ours.shape == z.shape
    theirs = [
        entry_by_entry(name, given, a.flatten().tolist(), b.flatten().tolist()) for a, b in zip(z, seen, strict=True)
    ]
    torch.testing.assert_close(ours.flatten(1), torch.tensor(theirs, dtype=torch.float64), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("name", "given"), EACH, ids=IDS)
def test_a_misfit_has_the_right_gradient(name: str, given: dict[str, Any]) -> None:
    torch.manual_seed(1)
    release = made(name, given)
    z = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
    seen = release(torch.randn(2, 8, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda guess: release.misfit(guess, seen), z)


@pytest.mark.parametrize(("name", "given"), EACH, ids=IDS)
def test_the_truth_misses_by_the_noise_and_by_nothing_else(name: str, given: dict[str, Any]) -> None:
    torch.manual_seed(2)
    release, z = made(name, given), torch.randn(500, 40)
    mean = release.misfit(z, release(z)).mean().item()
    assert mean == pytest.approx(release.unavoidable(), rel=0.03, abs=1e-9)


@pytest.mark.parametrize("position", [0, 1])
def test_each_position_of_a_sequence_is_an_answer_of_its_own(position: int) -> None:
    torch.manual_seed(3)
    z, other = torch.randn(2, 4, 2, 10)
    for name in ("topk", "quantise"):
        release = made(name, {"keep": 0.3} if name == "topk" else {"bits": 2})
        seen = release(other)
        alone = release.misfit(z[:, position], seen[:, position])
        torch.testing.assert_close(release.misfit(z, seen)[:, position], alone)


def test_a_chain_is_explained_by_its_last_release() -> None:
    torch.manual_seed(4)
    clip, noise = made("clip", {"clip": 1.0}), made("laplace", {"scale": 0.2, "unit": "raw"})
    z, seen = torch.randn(2, 3, 9)
    clipped = Chain(clip, noise)
    torch.testing.assert_close(clipped.misfit(z, seen), (clip(z) - seen).abs())
    assert (clipped.power, clipped.unavoidable()) == (1.0, 0.2)
    noisy = Chain(made("gaussian", {"sigma": 0.5, "unit": "raw"}), made("topk", {"keep": 0.2}))
    assert noisy.unavoidable() == pytest.approx(0.2 * 0.25), "noise is on what survives"
    assert torch.equal(Chain().misfit(z, seen), (z - seen).square())
    assert Chain().unavoidable() == 0


def test_a_release_that_is_a_plain_function_is_explained_by_the_squared_error() -> None:
    victim = Victim(nn.Flatten(), nn.Identity(), lambda z: 2 * z, (1, 2, 2), 2, None)
    x, z = torch.rand(3, 1, 2, 2), torch.rand(3, 4)
    torch.testing.assert_close(victim.misfit(x, z), (2 * x.flatten(1) - z).square())
    assert (victim.power, victim.noise) == (2.0, 0.0)
    torch.testing.assert_close(victim.residual(x, z), (2 * x.flatten(1) - z).norm(dim=1) / z.norm(dim=1))


def test_an_entry_that_was_left_out_is_not_missed() -> None:
    victim = Victim(nn.Flatten(), nn.Identity(), made("dropout", {"drop": 0.5}), (1, 4, 4), 2, None)
    x = 0.1 + torch.rand(5, 1, 4, 4)
    assert torch.equal(victim.residual(x, victim.released(x)), torch.zeros(5))


@pytest.mark.parametrize(
    ("power", "noise", "density"),
    [(2.0, 0.25, torch.distributions.Normal(0.0, 0.5)), (1.0, 0.3, torch.distributions.Laplace(0.0, 0.3))],
)
def test_under_known_noise_the_loss_is_the_negative_log_likelihood(
    power: float, noise: float, density: torch.distributions.Distribution
) -> None:
    one, other = torch.randn(2, 3, 7)
    scale = scale_of("likelihood", one, power, noise)
    ours = scale * (one.abs().pow(power).mean(dim=1) - other.abs().pow(power).mean(dim=1))
    theirs = density.log_prob(other).sum(dim=1) - density.log_prob(one).sum(dim=1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------- the white box through each release


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 1, 7, 7, generator=generator)
    return (3 * (nn.functional.interpolate(coarse, size=(28, 28), mode="bilinear") - 0.5)).clamp(0, 1)


def through(name: str, given: dict[str, Any]) -> Victim:
    torch.manual_seed(0)
    return Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, cut="conv1", release=[{"name": name, **given}]))


@pytest.mark.parametrize(
    ("name", "given"),
    [("dropout", {"drop": 0.5}), ("topk", {"keep": 0.3}), ("quantise", {"bits": 2}), ("clip", {"clip": 3.0})],
    ids=str,
)
def test_what_a_release_let_through_is_explained_better_than_by_squared_errors(
    name: str, given: dict[str, Any], images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.whitebox.STEPS", {"fast": 60})
    victim = through(name, given)
    torch.manual_seed(1)
    z = victim.released(images)
    squared = replace(victim, release=victim.release.expected)  # type: ignore[attr-defined]  # what h is expected to be
    before = victim.residual(WhiteBox("no-data", "fast").reconstruct(squared, z).x, z)
    ours = WhiteBox("no-data", "fast").reconstruct(victim, z).residual
    assert ours.mean() <= before.mean() * 1.001


@pytest.mark.parametrize(("name", "given"), [("gaussian", {"sigma": 0.3}), ("laplace", {"scale": 0.2})], ids=str)
@pytest.mark.parametrize("recipe", ["no-data", "adaptive"])
def test_noise_is_not_explained(
    recipe: str, name: str, given: dict[str, Any], images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.whitebox.STEPS", {"fast": 100})
    victim = through(name, given)
    torch.manual_seed(1)
    z = victim.released(images)
    attack = WhiteBox(recipe, "fast")
    attack.prepare(victim, AttackerData(images.flip(3), torch.zeros(6, dtype=torch.long)))
    found = attack.reconstruct(victim, z)
    plain = replace(victim, release=victim.release.expected)  # type: ignore[attr-defined]  # an attacker who knows of no noise
    unaware = WhiteBox(recipe, "fast")
    unaware.prepare(plain, AttackerData(images.flip(3), torch.zeros(6, dtype=torch.long)))
    assert (found.x - images).square().mean() < (unaware.reconstruct(plain, z).x - images).square().mean()


def test_the_true_input_counts_as_explained(images: Tensor) -> None:
    for name, given in (("gaussian", {"sigma": 0.3}), ("laplace", {"scale": 0.2})):
        victim = through(name, given)
        torch.manual_seed(1)
        z = victim.released(images).flatten(1)
        torch.testing.assert_close(explained(victim, z), victim.residual(images, z), rtol=0.05, atol=0.0)
    exact = replace(victim, release=Chain())
    assert explained(exact, z).tolist() == [0] * len(z)


def test_among_those_that_explain_all_but_the_noise_the_most_typical_wins() -> None:
    flat, ramp = torch.zeros(1, 1, 4, 4), torch.arange(4.0).expand(1, 1, 4, 4)  # total variation 0 and 9
    x = torch.stack([3 * ramp, ramp, flat])
    residual = torch.tensor([[0.10], [0.25], [0.29]])
    assert best_explanation(x, residual).tolist() == [0]
    assert best_explanation(x, residual, explained=torch.tensor([0.3])).tolist() == [2], "the smoothest"
    assert best_explanation(x, residual, explained=torch.tensor([0.3]), typical=9.0).tolist() == [1]


@pytest.mark.parametrize("recipe", ["no-data", "adaptive"])
@pytest.mark.parametrize("budget", ["fast", "normal", "thorough"])
def test_priors_weighed_against_the_noise_are_tried_where_there_is_noise(recipe: str, budget: str) -> None:
    usual = candidates_of(recipe, budget, (1, 28, 28))
    ours = candidates_of(recipe, budget, (1, 28, 28), True)
    assert len(ours) == len(usual) == len(set(ours))
    assert {each.loss for each in ours} > {"likelihood"}
    assert recipe == "adaptive" or all(each.start != "mean" for each in ours)


def test_a_norm_is_of_the_differences_behind_the_misfits() -> None:
    assert norm_of(torch.tensor([[9.0, 16.0]]), 2.0).item() == 5
    assert norm_of(torch.tensor([[3.0, 4.0]]), 1.0).item() == 7
