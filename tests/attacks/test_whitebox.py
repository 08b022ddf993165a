"""White-box inversion: batched equals one at a time, it recovers what can be recovered, and it survives a bad step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.descent import Candidate, Descent, feature_weights, total_variation
from sweetspot.attacks.leaky import Leak
from sweetspot.attacks.threat_model import SHARE_OF_DEVICE, inputs_at_once
from sweetspot.attacks.whitebox import ADAPTIVE, NO_DATA, PAPER_GREY, STEPS, WhiteBox, best_explanation, candidates_of
from sweetspot.errors import UserError
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.metrics.similarity import ssim


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


def short(monkeypatch: pytest.MonkeyPatch, steps: int, candidates: list[Candidate] | None = None) -> None:
    """Let the fast attacker take fewer steps, and try these candidates instead of its own."""
    monkeypatch.setattr("sweetspot.attacks.whitebox.PAPER_STEPS", steps)
    monkeypatch.setitem(STEPS, "fast", steps)
    if candidates is not None:
        monkeypatch.setattr("sweetspot.attacks.whitebox.candidates_of", lambda *_: candidates)


@pytest.mark.parametrize("recipe", WhiteBox.recipes)
def test_all_at_once_equals_one_at_a_time(
    recipe: str, victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = "spread" if recipe == "adaptive" else "relative"
    weak = Candidate(loss=loss, start="grey", tv=1e-4, tv_end=None)
    short(monkeypatch, 20, [weak, replace(weak, tv=1e-3, start="random")])
    attack = WhiteBox(recipe, "fast")
    attack.prepare(victim, AttackerData(images, torch.zeros(6, dtype=torch.long)))
    with torch.no_grad():
        z = victim.encoder(images[:4])
    together = attack.reconstruct(victim, z)
    monkeypatch.setattr(WhiteBox, "starts", same_starts(WhiteBox.starts, attack, victim, z))
    alone = torch.cat([attack.reconstruct(victim, one[None]).x for one in z])
    torch.testing.assert_close(together.x, alone, rtol=1e-4, atol=1e-5)


def same_starts(starts: Any, attack: WhiteBox, victim: Victim, z: Tensor) -> Any:
    """`WhiteBox.starts` for one input after the other that gives each the start it had among all."""
    calls = iter(range(len(z)))

    def of_the_next(self: WhiteBox, victim: Victim, one: Tensor, group: list[Candidate]) -> Tensor:
        i = next(calls)
        chosen: Tensor = starts(attack, victim, z, group)[:, i : i + 1]
        return chosen

    return of_the_next


def test_the_first_convolution_gives_the_image_back(victim: Victim, images: Tensor) -> None:
    attack = WhiteBox("no-data", "fast")
    with torch.no_grad():
        z = victim.encoder(images)
    reconstruction = attack.reconstruct(victim, z)
    assert ssim(reconstruction.x, images).min() > 0.95
    assert reconstruction.residual.max() < 0.1


def test_the_smallest_residual_wins_for_every_input(
    victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Candidate(loss="relative", start="grey", tv=1e-4, tv_end=None)
    short(monkeypatch, 60, [replace(sound, lr=1e-9), sound])
    with torch.no_grad():
        z = victim.encoder(images)
    reconstruction = WhiteBox("no-data", "fast").reconstruct(victim, z)
    assert reconstruction.trace["chosen"] == [1] * len(images)
    residual = (victim.represent(reconstruction.x) - z.flatten(1)).norm(dim=1) / z.flatten(1).norm(dim=1)
    assert torch.allclose(reconstruction.residual, residual, rtol=1e-3, atol=1e-6)


def test_among_equal_explanations_the_smoothest_wins() -> None:
    smooth, rough = torch.zeros(1, 1, 4, 4), torch.eye(4).view(1, 1, 4, 4)
    x = torch.stack([rough, smooth, smooth])  # (K, B, …)
    assert best_explanation(x, torch.tensor([[0.10], [0.11], [0.5]])).tolist() == [1]
    assert best_explanation(x, torch.tensor([[0.10], [0.20], [0.5]])).tolist() == [0]


def test_among_vectors_that_explain_z_the_one_nearest_to_the_data_wins() -> None:
    x = torch.tensor([[[9.0, 9.0]], [[1.0, 1.0]], [[0.0, 0.0]]])  # (K, B, d)
    residual = torch.tensor([[1e-7], [5e-4], [0.3]])
    assert best_explanation(x, residual, torch.ones(2)).tolist() == [1]


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("decay", [0.0, 1e-4])
def test_a_descent_that_overflows_starts_again_from_its_best_point(
    images: Tensor, optimiser: str, decay: float
) -> None:
    class Steep(nn.Module):
        """A step that is too long lands where the next is longer still, until the numbers end; and then NaN."""

        def forward(self, x: Tensor) -> Tensor:
            return (x + torch.where(x.abs() > 20, x.pow(9), 0.0)).flatten(1)

    victim = Victim(Steep(), nn.Identity(), lambda z: z, (1, 28, 28), 10, None)
    z = images.flatten(1)
    wild = Candidate(
        optimiser, lr=100_000.0, loss="mse", start="zeros", tv=0.0, tv_end=None, leak=0.0, weight_decay=decay, box=False
    )
    descent = Descent(victim.misfit, z, [wild], torch.zeros(1, 6, 1, 28, 28), torch.ones(784))
    assert descent.run(300, "wild") == 300
    assert (descent.lr < wild.lr).all(), "every input overflowed"
    for at_the_last in (False, True):
        x, residual = descent.ended(at_the_last)
        assert x.isfinite().all()
        assert residual.max() < 0.1, "and came back with a step that suits it"


def test_vectors_are_attacked_without_a_box_or_a_prior() -> None:
    torch.manual_seed(0)
    encoder = nn.Linear(10, 10)
    nn.init.orthogonal_(encoder.weight)  # as easy to invert as a map can be: what is missed is missed by the attack
    victim = Victim(encoder.requires_grad_(False), nn.Identity(), lambda z: z, (10,), 2, None)
    x = torch.randn(5, 10) * 2
    reconstruction = WhiteBox("no-data", "normal").reconstruct(victim, encoder(x))
    assert torch.allclose(reconstruction.x, x, atol=0.1)


@pytest.mark.parametrize(("recipe", "budget"), [("kind", "fast"), ("paper", "endless")])
def test_wrong_settings_are_refused(recipe: str, budget: str) -> None:
    with pytest.raises(UserError, match="must be"):
        WhiteBox(recipe, budget)


def test_ctrl_c_gives_the_best_so_far(victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        z = victim.encoder(images)
    descend, count = Descent.descend, iter(range(10**6))

    def ctrl_c(self: Descent, step: int, steps: int) -> None:
        if next(count) == 40:
            raise KeyboardInterrupt
        descend(self, step, steps)

    monkeypatch.setattr(Descent, "descend", ctrl_c)
    reconstruction = WhiteBox("no-data", "fast").reconstruct(victim, z)
    assert (reconstruction.trace["steps"], reconstruction.trace["of"]) == (40, 300)
    assert reconstruction.residual.max() < 0.8


def test_features_are_weighted_as_the_loss_says() -> None:
    spread = torch.tensor([1.0, 3.0])
    assert feature_weights("mse", spread).tolist() == [1, 1]
    assert feature_weights("scaled", spread).tolist() == pytest.approx([0.2, 0.2])
    own = feature_weights("spread", spread)
    assert own[0] / own[1] == pytest.approx((3.1 / 1.1) ** 2)


def test_the_papers_step_is_taken_on_what_the_network_sees(images: Tensor) -> None:
    """A victim that standardises inside equals one whose data were standardised outside, step for step."""
    torch.manual_seed(0)
    pixels = {"mean": [0.3], "std": [0.25]}
    inside = Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, cut="conv1", pixels=pixels))
    outside = Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, cut="conv1"))
    trained = {name.split(".", 1)[1]: w for name, w in inside.encoder.state_dict().items() if "conv1" in name}
    next(m for m in outside.encoder.modules() if isinstance(m, nn.Conv2d)).load_state_dict(trained)
    with torch.no_grad():
        z = inside.encoder(images)
    assert torch.allclose(z, outside.encoder((images - 0.3) / 0.25), atol=1e-5)
    ours = WhiteBox("paper").reconstruct(inside, z).x
    theirs = WhiteBox("paper").reconstruct(outside, z).x
    torch.testing.assert_close(ours, 0.3 + 0.25 * theirs, rtol=1e-3, atol=1e-3)
    assert PAPER_GREY.lr == 10


# ---------------------------------------------------------------------- gradients through shut ReLUs


class Functional(nn.Module):
    """ReLUs in every way that a network calls them by, one of them on tokens that were folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.shut = nn.Linear(3, 4), nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(nn.functional.relu(self.first(x)) - 0.1)
        tokens: Tensor = self.shut(self.second(x).view(-1, 2)).view(len(x), -1)
        return (tokens - 0.1).relu()


def test_a_leak_changes_gradients_and_nothing_else() -> None:
    torch.manual_seed(0)
    encoder, leak, x = Functional(), Leak(), torch.randn(5, 3)
    expected = encoder(x)
    for slopes in (None, torch.tensor([0.0, 0.25, 0.5, 1.0, 0.0])):
        leak.slopes = slopes
        with leak:
            assert torch.equal(encoder(x), expected)


IN_PLACE = [nn.ReLU(inplace=True), torch.relu_, Tensor.relu_, lambda x: nn.functional.relu(input=x, inplace=True)]


@pytest.mark.parametrize("relu", [nn.ReLU(), torch.relu, nn.functional.relu, Tensor.relu, *IN_PLACE])
def test_a_leak_is_each_inputs_own_however_a_relu_is_called(relu: Any) -> None:
    leak, x = Leak(), torch.tensor([[-1.0, 2.0], [-1.0, 2.0]], requires_grad=True)
    leak.slopes = torch.tensor([0.0, 0.3])
    with leak:
        relu(1 * x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0.0, 1.0], [0.3, 1.0]]))


@pytest.mark.parametrize("relu", IN_PLACE)
def test_a_leak_in_place_leaves_behind_what_the_relu_does(relu: Any) -> None:
    leak, x = Leak(), torch.tensor([[-1.0, 2.0], [-3.0, -2.0]], requires_grad=True)
    leak.slopes = torch.tensor([0.0, 0.3])
    for part in (lambda y: y, lambda y: y[:, :1]):  # a tensor, and a view of one
        y = 1 * x
        expected = y.detach().clone()
        relu(part(expected))
        with leak:
            relu(part(y))  # nobody takes what comes back
        assert torch.equal(y, expected)
        (gradient,) = torch.autograd.grad(y[1, 0], x)
        assert gradient[1, 0] == pytest.approx(0.3), "through a unit that is shut"
        with leak, torch.no_grad():
            relu(part(again := 1 * x))
        assert torch.equal(again, expected)


def test_a_leak_follows_inputs_whose_tokens_are_folded_into_the_batch() -> None:
    leak, x = Leak(), -torch.ones(2, 3, 4, requires_grad=True)
    x.retain_grad()
    leak.slopes = torch.tensor([0.0, 0.3])
    with leak:
        torch.relu(x.flatten(0, 1)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0.3]).view(2, 1, 1).expand(2, 3, 4))


# ---------------------------------------------------------------------- without data


def test_without_data_nothing_of_the_attackers_own_is_used(victim: Victim, images: Tensor) -> None:
    own = AttackerData(images, torch.zeros(6, dtype=torch.long))
    with torch.no_grad():
        z = victim.encoder(images[:2])
    found = []
    for data in (None, own):
        attack = WhiteBox("no-data", "fast")
        attack.prepare(victim, data)
        assert attack.mean is None
        assert attack.spread is None
        found.append(attack.reconstruct(victim, z).x)
    assert torch.equal(*found)
    for shape in ((1, 28, 28), (10,)):
        for candidate in candidates_of("no-data", "thorough", shape):
            assert candidate.loss not in ("spread", "scaled")
            assert candidate.start != "mean"
    assert len(NO_DATA) == len(ADAPTIVE), "who has no data is not also poorer"


def test_an_attacker_with_data_refuses_to_go_without(victim: Victim, images: Tensor) -> None:
    with pytest.raises(UserError, match="no-data does without"):
        WhiteBox("adaptive").prepare(victim, None)
    with pytest.raises(UserError, match="must be prepared"):
        WhiteBox("adaptive").reconstruct(victim, victim.encoder(images))


def test_more_inputs_than_fit_at_once_are_attacked_in_parts(
    victim: Victim, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    short(monkeypatch, 10, [Candidate(), Candidate(loss="scaled")])
    z = victim.encoder(images)
    attack = WhiteBox("adaptive", "fast")
    attack.prepare(victim, AttackerData(images, torch.zeros(6, dtype=torch.long)))
    whole = attack.reconstruct(victim, z)
    monkeypatch.setattr("sweetspot.attacks.whitebox.CHUNK", 4)
    parts = attack.reconstruct(victim, z)
    torch.testing.assert_close(parts.x, whole.x, rtol=1e-4, atol=1e-5)
    assert parts.trace == whole.trace


def test_the_attacker_goes_through_the_defences_release(images: Tensor) -> None:
    torch.manual_seed(0)
    plain = Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, cut="conv1"))
    shifted = replace(plain, release=lambda z: 3 * z + 1)
    with torch.no_grad():
        z = shifted.release(shifted.encoder(images))
    reconstruction = WhiteBox("no-data", "fast").reconstruct(shifted, z)
    assert ssim(reconstruction.x, images).min() > 0.95
    assert reconstruction.residual.max() < 0.1


def test_large_images_are_fewer_at_once() -> None:
    small = Victim(nn.Flatten(), nn.Identity(), lambda z: z, (1, 28, 28), 2, None)
    large = Victim(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU()), nn.Identity(), lambda z: z, (3, 224, 224), 2, None)
    assert inputs_at_once(small, 800) == 800
    assert 1 <= inputs_at_once(large, 800) < 200


def test_runs_that_share_a_device_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Victim(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU()), nn.Identity(), lambda z: z, (3, 224, 224), 2, None)
    monkeypatch.setenv(SHARE_OF_DEVICE, "0.002")
    tenth = inputs_at_once(large, 10**6)
    monkeypatch.setenv(SHARE_OF_DEVICE, "0.02")
    assert inputs_at_once(large, 10**6) == pytest.approx(10 * tenth, abs=10)


def test_layers_that_give_back_several_tensors_are_counted() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
            return x, {"again": x.repeat(1, 9, 1, 1), "nothing": None}

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: Tensor) -> Tensor:
            z: Tensor = self.two(x)[0]
            return z

    one = Victim(nn.Flatten(), nn.Identity(), lambda z: z, (1, 28, 28), 2, None)
    several = replace(one, encoder=Encoder())
    # the input and ten copies against the input and one
    assert inputs_at_once(one, 10**9) == pytest.approx(inputs_at_once(several, 10**9) * 11 / 2, rel=1e-3)
