"""The federated round: the closed form is what autograd gives, and each defence does what it says."""

from __future__ import annotations

import pytest
import torch

from sweetspot.attacks.gradients.defences import clipped, noisy, pruned
from sweetspot.attacks.gradients.federated import Gradient, chosen_weights, explained, output
from sweetspot.errors import UserError
from tests.attacks.gradients.conftest import NAMES, played


@pytest.mark.parametrize("name", NAMES)
def test_the_closed_form_is_autograds_gradient(name: str) -> None:
    played_round = played(name, batch=3)
    r = output(played_round.x, played_round.weights, played_round.activation) - played_round.y
    ours = explained(played_round.x, r, played_round.weights, played_round.activation)
    assert torch.allclose(ours.a, played_round.gradient.a, rtol=1e-10)
    assert torch.allclose(ours.w, played_round.gradient.w, rtol=1e-10, atol=1e-15)


def test_the_chosen_weights_come_from_the_seed() -> None:
    first, again, other = (chosen_weights(5, 7, seed) for seed in (1, 1, 2))
    assert torch.equal(first.w, again.w)
    assert not torch.equal(first.w, other.w)
    assert torch.allclose(first.a, torch.full((7,), 1 / 7, dtype=torch.float64))
    with pytest.raises(UserError, match="at least one input"):
        chosen_weights(0, 7)


def test_noise_is_relative_to_each_part() -> None:
    gradient = played("tanh", width=4000).gradient
    shaken = noisy(gradient, 0.1, seed=3)
    for before, after in ((gradient.a, shaken.a), (gradient.w, shaken.w)):
        assert float((after - before).norm() / before.norm()) == pytest.approx(0.1, rel=0.05)
    assert torch.equal(noisy(gradient, 0.1, seed=3).w, shaken.w)
    assert torch.equal(noisy(gradient, 0.0).w, gradient.w)


def test_clipping_bounds_the_norm_of_all_and_leaves_small_gradients_alone() -> None:
    gradient = played("tanh").gradient
    small = clipped(gradient, 0.5)
    assert float(torch.hypot(small.a.norm(), small.w.norm())) == pytest.approx(0.5)
    assert torch.allclose(small.w / small.w.norm(), gradient.w / gradient.w.norm())
    assert torch.equal(clipped(gradient, 1e9).a, gradient.a)


def test_pruning_keeps_the_largest_entries_of_each_part() -> None:
    gradient = played("tanh").gradient
    thin = pruned(gradient, 0.75)
    for before, after in ((gradient.a, thin.a), (gradient.w, thin.w)):
        kept = after != 0
        assert float(kept.double().mean()) == pytest.approx(0.25, abs=0.01)
        assert before[kept].abs().min() >= before[~kept].abs().max()
        assert torch.equal(after[kept], before[kept])


@pytest.mark.parametrize(("defence", "value"), [(noisy, -1.0), (noisy, float("nan")), (clipped, 0.0), (pruned, 1.0)])
def test_impossible_defences_are_refused(defence: object, value: float) -> None:
    with pytest.raises(UserError, match="must be"):
        defence(Gradient(torch.ones(2), torch.ones(2, 2)), value)  # type: ignore[operator]
