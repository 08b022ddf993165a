"""Every moment against the dense Hermite tensor that it never builds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.gradients.hermite import Plan
from sweetspot.attacks.gradients.moments import (
    Observed,
    diagonal,
    moment,
    polynomials,
    projections,
    without_lower_orders,
    without_mean,
)
from sweetspot.attacks.gradients.subspace import moment_subspace, row_span
from sweetspot.errors import UserError
from tests.attacks.gradients.conftest import drawn, played


def hermite_tensor(w: Tensor, order: int) -> Tensor:
    """He_order of one vector (k,) by its definition, w_i·He_(p−1) − Σ δ_i·He_(p−2): (k, …, k)."""
    if order == 0:
        return torch.ones((), dtype=w.dtype)
    if order == 1:
        return w
    lower, lowest, eye = hermite_tensor(w, order - 1), hermite_tensor(w, order - 2), torch.eye(len(w)).double()
    total = torch.einsum("i,...->i...", w, lower)
    for place in range(1, order):
        total = total - torch.einsum("ij,...->ij...", eye, lowest).movedim(1, place)
    return total


def dense_moment(observed: Observed, source: str, order: int) -> Tensor:
    rows = list(zip(observed.w, observed.g, observed.v, strict=True))
    if source == "a":
        return torch.stack([g * hermite_tensor(w, order) for w, g, _ in rows]).mean(dim=0)
    one = torch.stack([torch.einsum("i,...->i...", v, hermite_tensor(w, order - 1)) for w, _, v in rows]).mean(dim=0)
    return torch.stack([one.movedim(0, place) for place in range(order)]).mean(dim=0)


def observation(units: int = 15, size: int = 4) -> Observed:
    return Observed(drawn(units, size, seed=1), drawn(units, seed=2), drawn(units, size, seed=3))


@pytest.mark.parametrize("source", ["w", "a"])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_moments_are_the_dense_ones(source: str, order: int) -> None:
    observed, fillers = observation(), drawn(order - 2, 4, seed=4)
    expected = dense_moment(observed, source, order)
    for filler in fillers:
        expected = expected @ filler
    found = moment(observed, source, order, fillers)
    assert torch.allclose(found.dense(), expected)
    x = drawn(4, 3, seed=5)
    assert torch.allclose(found.product(x), expected @ x)


@pytest.mark.parametrize("source", ["w", "a"])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_diagonal_is_the_dense_one(source: str, order: int) -> None:
    observed, directions = observation(), drawn(2, 4, seed=4)
    directions = directions / directions.norm(dim=1, keepdim=True)
    expected = []
    for u in directions:
        tensor = dense_moment(observed, source, order)
        for _ in range(order):
            tensor = tensor @ u
        expected.append(tensor)
    assert torch.allclose(diagonal(observed, source, order, directions), torch.stack(expected))


def test_a_moment_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match="no moment of order 5"):
        moment(observation(), "w", 5, drawn(3, 4))
    with pytest.raises(UserError, match="from 'b'"):
        moment(observation(), "b", 2, drawn(0, 4))


def test_control_variates_take_lower_orders_only() -> None:
    observed = observation(units=4000, size=3)
    shifted = replace(
        observed,
        g=observed.g + 7 + 5 * observed.w[:, 0] + 3 * observed.w[:, 1] * observed.w[:, 2],
        v=observed.v + 2 + observed.w[:, :1],
    )
    clean, reference = without_lower_orders(shifted, 3), without_lower_orders(observed, 3)
    assert torch.allclose(clean.g, reference.g)
    assert torch.allclose(clean.v, reference.v)
    assert (polynomials(observed.w, 2)[-1].T @ clean.g).abs().max() < 1e-8
    first = without_lower_orders(observed, 1)
    assert torch.equal(first.v, observed.v)  # its mean is the first moment
    assert without_mean(shifted).v.mean(dim=0).abs().max() < 1e-12


def test_control_variates_pay() -> None:
    played_round = played("sigmoid", batch=2, dim=5, width=4000)
    true, errors = played_round.x, []
    filler = true[:1]
    for observed in (played_round.observed, without_lower_orders(played_round.observed, 3)):
        found = moment(observed, "a", 3, filler).dense()
        outside = torch.eye(5) - torch.linalg.pinv(true) @ true
        errors.append(float((outside @ found).norm() / found.norm()))
    assert errors[1] < errors[0] / 5


def test_the_span_of_the_rows_is_the_samples_exactly() -> None:
    played_round = played("tanh", batch=3, dim=30)
    span = row_span(played_round.observed.v, 3)
    assert (played_round.x - played_round.x @ span.basis @ span.basis.T).norm() < 1e-12
    assert span.rank == 3
    assert span.left_over < 1e-7
    expected = torch.linalg.svdvals(played_round.observed.v)[:3]
    assert torch.allclose(span.strengths[:3], expected)


@pytest.mark.parametrize(("name", "orders"), [("square-cubic", Plan(2, 3)), ("tanh", Plan(3, 3)), ("relu", Plan(2, 4))])
@pytest.mark.parametrize("source", ["w", "a"])
def test_the_subspace_of_a_moment_comes_near_with_width(name: str, orders: Plan, source: str) -> None:
    lost = []
    for width in (2000, 32000):
        played_round = played(name, dim=8, width=width)
        basis = moment_subspace(played_round.observed, orders, source, 2)
        lost.append(float((played_round.x - played_round.x @ basis @ basis.T).norm()))
    assert lost[1] < 0.15
    assert lost[1] < 0.6 * lost[0]


@pytest.mark.parametrize("source", ["w", "a"])
@pytest.mark.parametrize(("order", "size"), [(3, 4), (4, 4), (4, 9)])
def test_projections_are_the_moments_with_those_fillers(source: str, order: int, size: int) -> None:
    observed, fillers = played("tanh", dim=size).observed, drawn(3, order - 2, size, seed=5)
    expected = torch.stack([moment(observed, source, order, each).dense() for each in fillers])
    assert torch.allclose(
        projections(observed, source, order)(fillers), expected, atol=1e-9 * float(expected.abs().max())
    )
