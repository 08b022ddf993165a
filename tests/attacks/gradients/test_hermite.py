"""Hermite coefficients against closed forms; which moments an activation needs, and which it does not have."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad

from sweetspot.attacks.gradients.activations import Function, as_activation
from sweetspot.attacks.gradients.hermite import Plan, coefficients, plan, polynomial, quadrature
from sweetspot.errors import UserError
from tests.attacks.gradients.conftest import NAMES


def test_the_quadrature_knows_the_moments_of_a_gaussian() -> None:
    z, weights = quadrature()
    for power, expected in ((0, 1.0), (1, 0.0), (2, 1.0), (4, 3.0), (8, 105.0)):
        assert float(z**power @ weights) == pytest.approx(expected, abs=1e-10)


def test_the_polynomials_are_orthogonal() -> None:
    z, weights = quadrature()
    basis = torch.stack([polynomial(z, p) for p in range(6)])
    expected = torch.diag(torch.tensor([math.factorial(p) for p in range(6)]).double())
    assert torch.allclose(basis * weights @ basis.T, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("square-cubic", [1.0, 3.0, 2.0, 6.0, 0.0]),  # z² + z³ = 1 + 3·He1 + He2 + He3
        ("relu", [1 / math.sqrt(2 * math.pi), 0.5, 1 / math.sqrt(2 * math.pi), 0.0, -1 / math.sqrt(2 * math.pi)]),
    ],
)
def test_coefficients_against_closed_forms(name: str, expected: list[float]) -> None:
    found = coefficients(as_activation(name), torch.ones(1))[0]
    assert torch.allclose(found, torch.tensor(expected).double(), atol=1e-8)


def test_a_kink_away_from_zero_and_a_norm_against_scipy() -> None:
    clip = as_activation(torch.nn.functional.hardtanh)
    found = coefficients(clip, torch.tensor([2.0]))[0]
    for order in (1, 3):

        def integrand(z: float, order: int = order) -> float:
            at = torch.tensor(z).double()
            return float(polynomial(at, order)) * max(-1.0, min(1.0, 2 * z)) * math.exp(-z * z / 2)

        expected = quad(integrand, -12, 12, points=[-0.5, 0.5], limit=200)[0] / math.sqrt(2 * math.pi)
        assert float(found[order]) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_follows_the_coefficients(name: str) -> None:
    expected = {"square-cubic": Plan(2, 3), "tanh": Plan(3, 3), "sigmoid": Plan(3, 3)}
    assert plan(as_activation(name)) == expected.get(name, Plan(2, 4))


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        ("linear", "is linear: .* not identifiable"),
        ("quadratic", "is quadratic: .* not identifiable"),
        (lambda z: 3 * z.square() - z + 2, "is quadratic"),
        (lambda z: polynomial(z, 5), "orders 3 and 4 vanish"),
        (lambda z: z.sqrt(), "not finite"),
        ("swish-9", "must be one of"),
    ],
)
def test_activations_that_hide_the_samples_are_refused(which: str | Function, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        plan(as_activation(which))


def test_symmetries_are_seen() -> None:
    seen = {
        name: (each.is_odd, each.is_odd_but_for_a_constant, each.is_even, each.is_homogeneous)
        for name in NAMES
        for each in [as_activation(name)]
    }
    assert seen["tanh"] == (True, True, False, False)
    assert seen["sigmoid"] == (False, True, False, False)
    assert seen["relu"] == seen["leaky-relu"] == (False, False, False, True)
    assert seen["gelu"] == seen["silu"] == seen["softplus"] == seen["square-cubic"] == (False, False, False, False)
    assert as_activation(torch.cos).is_even
    assert as_activation("leaky-relu").slopes == pytest.approx((0.01, 1.0))


def test_derivatives_by_autograd() -> None:
    z = torch.linspace(-2, 2, 9).double()
    value, first, second = as_activation("square-cubic").derivatives(z, 2)
    assert torch.allclose(value, z**2 + z**3)
    assert torch.allclose(first, 2 * z + 3 * z**2)
    assert torch.allclose(second, 2 + 6 * z)
    assert as_activation("relu").derivatives(z, 2)[2].abs().max() == 0
