"""MixCon and UniCon against plain loops, their gradients, and the batches that could fool them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties import (
    PENALTY_FAMILY,
    MixCon,
    Penalty,
    UniCon,
    mixcon_loss,
    unicon_loss,
)
from sweetspot.lightning_modules.defences.penalties.mixcon import mixcon_pairs
from sweetspot.lightning_modules.defences.penalties.pairs import squared_distances, unit_norm


def mixcon_by_loop(z: Tensor, y: Tensor, f: Callable[[float], float], epsilon: float, normalise: bool) -> float:
    """Eq. 1 as it is written: over i ≤ p, over classes c1, over classes c2 ≠ c1."""
    z = z.flatten(1).double()
    rows = [row / row.norm() for row in z] if normalise else list(z)
    classes = sorted(set(y.tolist()))
    members = {c: [row for row, label in zip(rows, y.tolist(), strict=True) if label == c] for c in classes}
    p = min(len(m) for m in members.values())
    total = 0.0
    for i in range(p):
        for c1, c2 in itertools.permutations(classes, 2):
            distance = (members[c1][i] - members[c2][i]).square().sum().item()
            total += f(min(max(distance, epsilon), 1 / epsilon))
    return total / p / (len(classes) * (len(classes) - 1))


def unicon_by_loop(z: Tensor, y: Tensor, normalise: bool) -> float:
    z = z.flatten(1).double()
    rows = [row / row.norm() for row in z] if normalise else list(z)
    means: list[float] = []
    for c in sorted(set(y.tolist())):
        members = [row for row, label in zip(rows, y.tolist(), strict=True) if label == c]
        pairs = [(a - b).square().sum().item() for a, b in itertools.permutations(members, 2)]
        if pairs:
            means.append(sum(pairs) / len(pairs))
    return sum(means) / len(means)


BALANCED = torch.arange(12) % 3
RAGGED = torch.tensor([2, 2, 0, 2, 1, 0, 2, 5, 1, 2, 5, 0])
SHAPES = [(12, 7), (12, 4, 3, 3)]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("y", [BALANCED, RAGGED], ids=["balanced", "ragged"])
@pytest.mark.parametrize("beta", [0.0, 1e-4, 0.3])
def test_mixcon_equals_the_loop(beta: float, y: Tensor, shape: tuple[int, ...], normalise: bool) -> None:
    z = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    expected = mixcon_by_loop(z, y, lambda d: d + beta / d, 1e-6, normalise)
    assert mixcon_loss(z, y, beta, normalise=normalise).item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("family", PENALTY_FAMILY)
def test_every_member_of_the_family_equals_the_loop(family: str) -> None:
    formulas: dict[str, Callable[[float], float]] = {
        "inverse": lambda d: d + 0.1 / d,
        "log": lambda d: d - 0.1 * math.log(d),
        "inverse-square": lambda d: d + 0.1 / d**2,
    }
    z = torch.randn(12, 5, generator=torch.Generator().manual_seed(2))
    expected = mixcon_by_loop(z, RAGGED, formulas[family], 1e-6, True)
    assert mixcon_loss(z, RAGGED, 0.1, family=family).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("family", PENALTY_FAMILY)
def test_the_family_is_convex_and_grows_at_both_ends(family: str) -> None:
    d = torch.logspace(-4, 4, 2001, dtype=torch.float64)
    value, _ = PENALTY_FAMILY[family](d, 0.1)
    derivative = value.diff() / d.diff()
    assert (derivative.diff() > -1e-9).all()
    assert derivative[0] < 0 < derivative[-1]


def test_close_representations_keep_their_digits() -> None:
    """MixCon pushes all representations together: in fp32, distances of 1e-6 must still come out."""
    base = torch.ones(1, 400)
    z = base + 1e-4 * torch.randn(12, 400, generator=torch.Generator().manual_seed(0))
    expected = mixcon_by_loop(z, BALANCED, lambda d: d + 1e-12 / d, 1e-12, True)
    assert mixcon_loss(z, BALANCED, 1e-12, epsilon=1e-12).item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("y", [BALANCED, RAGGED], ids=["balanced", "ragged"])
def test_unicon_equals_the_loop(y: Tensor, shape: tuple[int, ...], normalise: bool) -> None:
    z = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    expected = unicon_by_loop(z, y, normalise)
    assert unicon_loss(z, y, normalise).item() == pytest.approx(expected, rel=1e-6)


def test_unicon_leaves_out_a_class_with_one_example() -> None:
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(4))
    y = torch.tensor([0, 0, 1, 2, 2])
    assert unicon_loss(z, y).item() == pytest.approx(unicon_by_loop(z, y, True), rel=1e-6)


@pytest.mark.parametrize("y", [BALANCED, RAGGED], ids=["balanced", "ragged"])
@pytest.mark.parametrize("family", PENALTY_FAMILY)
def test_gradients_of_mixcon(family: str, y: Tensor) -> None:
    z = torch.randn(12, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: mixcon_loss(z, y, 0.1, family=family), z)


def test_gradients_of_unicon() -> None:
    z = torch.randn(12, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: unicon_loss(z, RAGGED), z)


@pytest.mark.parametrize("value", [0.0, 1.0], ids=["all zero", "all equal"])
@pytest.mark.parametrize("defence", [MixCon(beta=1e-4), MixCon(beta=0.0), UniCon()], ids=["mixcon", "beta 0", "unicon"])
def test_identical_representations_give_finite_numbers(defence: MixCon | UniCon, value: float) -> None:
    z = torch.full((12, 5), value, requires_grad=True)
    loss = defence.penalty(z, BALANCED, z)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_one_dead_representation_among_live_ones_gives_a_finite_gradient() -> None:
    z = torch.randn(12, 5)
    z[3] = 0
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(mixcon_loss(z, BALANCED, 1e-4), z)
    assert gradient.isfinite().all()
    assert gradient[3].abs().max() == 0


def test_a_batch_without_pairs_is_never_a_silent_zero() -> None:
    z = torch.randn(4, 5)
    assert mixcon_loss(z, torch.zeros(4, dtype=torch.long), 1e-4).isnan()
    assert unicon_loss(z, torch.arange(4)).isnan()


def test_mixcon_pulls_classes_together_down_to_beta() -> None:
    """Gradient descent on the penalty alone ends where dist + β/dist is least, at dist = √β."""
    z = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1])
    optimiser = torch.optim.SGD([z], lr=0.05)
    for _ in range(2000):
        optimiser.zero_grad()
        mixcon_loss(z, y, 0.01).backward()
        optimiser.step()
    assert squared_distances(unit_norm(z))[0, 1].item() == pytest.approx(0.1, rel=1e-3)


def test_mixed_precision_does_not_touch_the_penalty() -> None:
    """Under bf16 a distance of 1e-4 would be noise."""
    z = 1 + 1e-3 * torch.randn(12, 50, generator=torch.Generator().manual_seed(0))
    expected = mixcon_loss(z, BALANCED, 1e-8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mixcon_loss(z, BALANCED, 1e-8), expected)


def test_order_within_the_batch_only_changes_who_is_paired() -> None:
    z, y = torch.randn(12, 5), BALANCED
    swapped = torch.arange(12).view(4, 3)[:, [2, 0, 1]].flatten()  # within each round of classes
    assert torch.allclose(mixcon_loss(z, y, 0.1), mixcon_loss(z[swapped], y[swapped], 0.1))


# ---------------------------------------------------------------------- many ragged classes: tokens


def test_with_all_partners_the_ragged_penalty_is_the_mean_over_all_pairs_of_different_classes() -> None:
    torch.manual_seed(0)
    z, y = torch.randn(12, 5, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 5, 5])
    unit = z / z.norm(dim=1, keepdim=True)
    terms = [(d := (unit[i] - unit[j]).square().sum()) + 0.1 / d for i in range(12) for j in range(12) if y[i] != y[j]]
    found = MixCon(beta=0.1, partners=11).penalty(z, y, z)
    assert found.item() == pytest.approx(torch.stack(terms).mean().item())
    few = torch.stack([MixCon(beta=0.1, partners=2).penalty(z, y, z) for _ in range(2000)])
    assert few.mean().item() == pytest.approx(found.item(), rel=0.05), "some partners are a fair sample of all"


def test_the_ragged_unicon_compares_within_a_class_only() -> None:
    z, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]]), torch.tensor([7, 3, 7, 9])
    assert UniCon(partners=3).penalty(z, y, z).item() == 0
    z[2] = torch.tensor([0.0, 1.0])
    assert UniCon(partners=3).penalty(z, y, z).item() == 2
    assert UniCon(partners=3).penalty(z[:2], y[:2], z).isnan(), "no pair is never a silent zero"


@pytest.mark.parametrize("defence", [MixCon(beta=1e-2, partners=4), UniCon(partners=4)])
def test_the_ragged_penalties_have_their_gradients(defence: Penalty) -> None:
    z = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0, 1, 1, 2, 3, 3, 3])

    def penalty(z: Tensor) -> Tensor:
        torch.manual_seed(0)
        return defence.penalty(z, y, z)

    assert torch.autograd.gradcheck(penalty, z)


@pytest.mark.parametrize(("classes", "batch"), [(10, 16), (10, 20), (3, 7), (7, 20), (10, 6), (2, 5)])
def test_mixcon_says_how_many_of_a_batch_enter_no_pair(classes: int, batch: int) -> None:
    y = torch.arange(batch) % classes
    in_no_pair = int((~mixcon_pairs(y).any(dim=1)).sum())
    assert MixCon().left_out(classes, batch) == in_no_pair
    assert MixCon(partners=8).left_out(classes, batch) == UniCon().left_out(classes, batch) == 0
