"""Joint diagonalisation: components that are not orthogonal, weights of both signs, with and without noise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.gradients.diagonalisation import alternating, components, diagonaliser, missed, refined, unit
from sweetspot.attacks.gradients.hermite import coefficients
from sweetspot.attacks.gradients.magnitudes import scaled
from sweetspot.metrics.gradients import batch_score
from tests.attacks.gradients.conftest import drawn, played


def off(found: Tensor, true: Tensor) -> float:
    nothing = torch.zeros(len(true))
    return float(batch_score(found, nothing, true, nothing, up_to_sign=True).error.max())


def stack(true: Tensor, noise: float = 0.0) -> Tensor:
    matrices = torch.einsum("li,ia,ib->lab", drawn(40, len(true), seed=7), true, true)
    shaken = drawn(*matrices.shape, seed=8)
    return matrices + noise * (shaken + shaken.transpose(1, 2)) / 2


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_exact_matrices_are_diagonalised_exactly(size: int) -> None:
    true = unit(drawn(size, size, seed=1) + 0.5)
    assert off(diagonaliser(stack(true)), true) < 1e-8
    assert missed(stack(true), true) < 1e-12


def test_noise_costs_in_proportion() -> None:
    true = unit(drawn(4, 4, seed=1))
    errors = [off(alternating(stack(true, level), diagonaliser(stack(true, level))), true) for level in (1e-4, 1e-2)]
    assert errors[0] < 1e-3
    assert errors[1] < 1e-1


def test_neither_refinement_makes_a_guess_worse() -> None:
    true = unit(drawn(4, 4, seed=1))
    matrices, guess = stack(true, 0.05), unit(true + 0.3 * drawn(4, 4, seed=2))
    for better in (refined(matrices, guess), alternating(matrices, guess)):
        assert missed(matrices, better) <= missed(matrices, guess)


@pytest.mark.parametrize("order", [3, 4])
def test_components_of_a_tensor_seen_through_projections(order: int) -> None:
    true, weights = unit(drawn(5, 5, seed=3)), torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0]).double()

    def project(fillers: Tensor) -> Tensor:
        seen = torch.einsum("lpa,ia->lpi", fillers, true).prod(dim=1) * weights
        return torch.einsum("li,ia,ib->lab", seen, true, true)

    assert off(components(project, 5, order, seed=0), true) < 1e-7


@pytest.mark.parametrize("name", ["square-cubic", "tanh", "gelu"])
def test_signs_magnitudes_and_residues_come_from_the_moments(name: str) -> None:
    played_round = played(name, dim=3, width=20000)
    true, sign = 2.0 * played_round.x, torch.tensor([[1.0], [-1.0]]).double()
    r = torch.tensor([31.0, 29.0]).double()
    z = played_round.weights.w @ true.T
    value, first = played_round.activation.derivatives(z, 1)
    observed = played_round.observed
    observed = type(observed)(observed.w, value @ r, (first * r) @ true)
    x, residues = scaled(observed, "w", sign * unit(true), played_round.activation, 30.0, None)
    assert (x - true).norm() / true.norm() < 0.2
    assert (residues / r - 1).abs().max() < 0.25
    known, _ = scaled(observed, "w", sign * unit(true), played_round.activation, 30.0, 2.0)
    assert torch.allclose(known, true)
    assert coefficients(played_round.activation, torch.tensor([2.0])).shape == (1, 5)
