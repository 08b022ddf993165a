"""White-box inversion: batched equals one at a time, it recovers what can be recovered, and it survives a bad step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attacks import AttackerData, Victim
from attacks.whitebox import BUDGETS, Candidate, WhiteBox, best_explanation, descend, total_variation
from errors import UserError
from lightning_modules.split_module import SplitModule
from metrics.similarity import ssim


@pytest.fixture
def images() -> Tensor:
    """Smooth blobs, which look enough like digits."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(6, 1, 7, 7, generator=generator)
    blobs = nn.functional.interpolate(coarse, size=(28, 28), mode="bilinear")
    return (3 * (blobs - 0.5)).clamp(0, 1)


@pytest.fixture
def victim() -> Victim:
    torch.manual_seed(0)
    return Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, cut="conv1"))


def test_total_variation_equals_the_formula() -> None:
    s = torch.rand(2, 3, 5, 4, dtype=torch.float64)
    expected = torch.zeros(2, dtype=torch.float64)
    for b in range(2):
        for c in range(3):
            for i in range(4):
                for j in range(3):
                    down, right = s[b, c, i + 1, j] - s[b, c, i, j], s[b, c, i, j + 1] - s[b, c, i, j]
                    expected[b] += (down**2 + right**2).sqrt()
    assert torch.allclose(total_variation(s), expected, atol=1e-6)
    assert torch.autograd.gradcheck(total_variation, torch.rand(1, 1, 4, 4, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("recipe", ["paper", "adaptive"])
def test_all_at_once_equals_one_at_a_time(
    recipe: str, victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attacks.whitebox.PAPER_STEPS", 20)
    monkeypatch.setitem(BUDGETS, "fast", (20, [Candidate(tv=1e-4), Candidate(tv=1e-3, start="zeros")]))
    attack = WhiteBox(recipe, "fast")
    attack.prepare(victim, AttackerData(images, torch.zeros(6, dtype=torch.long)))
    with torch.no_grad():
        z = victim.encoder(images[:4])
    together = attack.reconstruct(victim, z)
    alone = torch.cat([attack.reconstruct(victim, one[None]).x for one in z])
    torch.testing.assert_close(together.x, alone, rtol=1e-4, atol=1e-5)


def test_the_first_convolution_gives_the_image_back(victim: Victim, images: Tensor) -> None:
    attack = WhiteBox("adaptive", "fast")
    with torch.no_grad():
        z = victim.encoder(images)
    reconstruction = attack.reconstruct(victim, z)
    assert ssim(reconstruction.x, images).min() > 0.95
    assert reconstruction.residual.max() < 0.1


def test_the_smallest_residual_wins_for_every_input(
    victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless, sound = Candidate(lr=1e-9), Candidate(tv=1e-4)
    monkeypatch.setitem(BUDGETS, "fast", (60, [hopeless, sound]))
    with torch.no_grad():
        z = victim.encoder(images)
    reconstruction = WhiteBox("adaptive", "fast").reconstruct(victim, z)
    assert reconstruction.trace["chosen"] == [1] * len(images)
    residual = (victim.represent(reconstruction.x) - z.flatten(1)).norm(dim=1) / z.flatten(1).norm(dim=1)
    assert torch.allclose(reconstruction.residual, residual, rtol=1e-3, atol=1e-6)


def test_among_equal_explanations_the_smoothest_wins() -> None:
    smooth, rough = torch.zeros(1, 1, 4, 4), torch.eye(4).view(1, 1, 4, 4)
    x = torch.stack([rough, smooth, smooth])  # (K, B, …)
    assert best_explanation(x, torch.tensor([[0.10], [0.11], [0.5]])).tolist() == [1]
    assert best_explanation(x, torch.tensor([[0.10], [0.20], [0.5]])).tolist() == [0]


def test_a_step_that_is_not_finite_goes_back_to_the_best_point(images: Tensor) -> None:
    class Brittle(nn.Module):
        """NaN wherever an input leaves the unit box by much."""

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x.abs() > 3, torch.nan, x).flatten(1)

    victim = Victim(Brittle(), nn.Identity(), lambda z: z, (1, 28, 28), 10, None)
    z = images.flatten(1)
    wild = Candidate("sgd", lr=4000.0, loss="mse", start="zeros", box=False)
    x, residual = descend(victim, z, [wild], 30, torch.zeros(1, 6, 1, 28, 28), torch.ones(784), "adaptive")
    assert x.isfinite().all()
    assert residual.isfinite().all()
    assert residual.max() <= 1 + 1e-6, "never worse than the start"


def test_vectors_are_attacked_without_a_box_or_a_prior() -> None:
    torch.manual_seed(0)
    encoder = nn.Linear(10, 10)
    nn.init.orthogonal_(encoder.weight)  # as easy to invert as a map can be: what is missed is missed by the attack
    victim = Victim(encoder.requires_grad_(False), nn.Identity(), lambda z: z, (10,), 2, None)
    x = torch.randn(5, 10) * 2
    reconstruction = WhiteBox("adaptive", "normal").reconstruct(victim, encoder(x))
    assert torch.allclose(reconstruction.x, x, atol=0.1)


@pytest.mark.parametrize(("recipe", "budget"), [("kind", "fast"), ("paper", "endless")])
def test_wrong_settings_are_refused(recipe: str, budget: str) -> None:
    with pytest.raises(UserError, match="must be"):
        WhiteBox(recipe, budget)
