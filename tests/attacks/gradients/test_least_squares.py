"""The two least-squares problems: their zeros, and their derivatives against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.gradients.components import (
    SmoothSearch,
    StepSearch,
    distinct,
    samples,
    search_for,
    where_the_rest_is,
)
from sweetspot.attacks.gradients.federated import output
from sweetspot.attacks.gradients.least_squares import System, levenberg_marquardt, linear_least_squares, of_any_rank
from sweetspot.attacks.gradients.polish import JointProblem, joint, signed
from sweetspot.attacks.gradients.refinement import completed, refined, reported_entries
from sweetspot.attacks.gradients.subspace import row_span
from sweetspot.metrics.gradients import batch_score
from tests.attacks.gradients.conftest import NAMES, Round, drawn, played


def reduced(played_round: Round) -> tuple[Round, Tensor, Tensor]:
    """The round, its samples in the coordinates of their span, and the basis."""
    basis = row_span(played_round.observed.v, len(played_round.x)).basis
    return played_round, played_round.x @ basis, basis


def circles(x: Tensor) -> System:
    """‖(x² − 2, x·y − 1)‖² at points (R, 2): zeros at ±(√2, 1/√2)."""
    rest = torch.stack([x[:, 0].square() - 2, x[:, 0] * x[:, 1] - 1], dim=1)
    zero = torch.zeros_like(x[:, 0])
    jacobian = torch.stack([torch.stack([2 * x[:, 0], zero], dim=1), x.flip(1)], dim=1)  # (R, 2, 2)
    gradient = torch.einsum("rab,ra->rb", jacobian, rest)
    return System(rest.square().sum(dim=1) / 2, gradient, jacobian.transpose(1, 2) @ jacobian)


def test_levenberg_marquardt_takes_many_starts_as_it_takes_each() -> None:
    starts = drawn(8, 2, seed=3)
    together, costs = levenberg_marquardt(circles, starts, 60, floor=1e-28)
    alone = torch.cat([levenberg_marquardt(circles, each[None], 60, floor=1e-28)[0] for each in starts])
    assert torch.allclose(together, alone)
    assert costs.max() < 1e-20
    assert torch.allclose(together * together[:, :1].sign(), torch.tensor([2**0.5, 0.5**0.5]).double().expand(8, 2))


def test_levenberg_marquardt_never_ends_worse_than_it_began() -> None:
    starts = drawn(8, 2, seed=3)
    assert (levenberg_marquardt(circles, starts, 1)[1] <= circles(starts).cost).all()


@pytest.mark.parametrize("name", ["square-cubic", "tanh", "gelu"])
def test_the_smooth_search_has_its_zeros_at_the_samples_and_the_right_slope(name: str) -> None:
    played_round, true, basis = reduced(played(name, batch=3))
    search = search_for(played_round.observed.projected(basis), played_round.activation)
    assert isinstance(search, SmoothSearch)
    assert search.system(true).cost.max() < 1e-24
    points = drawn(2, 3, seed=5).requires_grad_(True)
    s = torch.func.vmap(torch.func.grad(played_round.activation.function))((search.w @ points.T).flatten())
    s = s.view(-1, 2)
    s = s - s.mean(dim=0)
    rest = (s - search.basis @ (search.basis.T @ s)) / s.norm(dim=0)
    cost = rest.square().sum(dim=0) / 2
    (gradient,) = torch.autograd.grad(cost.sum(), points)
    found = search.system(points.detach())
    assert torch.allclose(found.cost, cost)
    assert torch.allclose(found.gradient, gradient)
    assert (torch.linalg.eigvalsh(found.curvature) > -1e-9).all()


@pytest.mark.parametrize("name", ["relu", "leaky-relu"])
def test_the_step_search_has_its_zeros_at_the_samples_and_the_right_slope(name: str) -> None:
    played_round, true, basis = reduced(played(name, batch=3))
    search = search_for(played_round.observed.projected(basis), played_round.activation)
    assert isinstance(search, StepSearch)
    assert search.system(search.point(true)).cost.max() < 1e-24
    q = drawn(2, 3, seed=5).requires_grad_(True)
    s = search.basis @ q.T
    (gradient,) = torch.autograd.grad((((s - search.low) * (s - search.high)).square().mean(dim=0) / 2).sum(), q)
    assert torch.allclose(search.system(q.detach()).gradient, gradient)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_found_from_bad_guesses(name: str) -> None:
    played_round, true, basis = reduced(played(name, batch=4))
    x, _ = samples(played_round.observed.projected(basis), played_round.activation, drawn(4, 4, seed=3), seed=1)
    nothing = torch.zeros(4)
    up_to_sign = played_round.activation.is_odd_but_for_a_constant
    assert batch_score(x, nothing, true, nothing, up_to_sign=up_to_sign).error.max() < 1e-8


def test_a_candidate_in_the_span_of_better_ones_is_no_new_sample() -> None:
    columns = torch.eye(4).double()[:, :3]
    columns = torch.cat([columns, columns[:, :1] + columns[:, 1:2], torch.zeros(4, 1)], dim=1)
    cost = torch.tensor([0.3, 0.1, 0.2, 0.4, 0.0])
    assert distinct(columns, cost, 4).tolist() == [1, 2, 0]
    assert distinct(columns, cost, 2).tolist() == [1, 2]


def test_what_is_not_found_lies_where_the_found_columns_leave_something() -> None:
    played_round, true, basis = reduced(played("tanh", batch=4))
    near = played_round.observed.projected(basis)
    columns = played_round.activation.derivatives(near.w @ true[:2].T, 1)[1]
    rows = where_the_rest_is(near.v, columns)
    assert (true[2:] - true[2:] @ rows.T @ rows).norm() < 1e-10
    assert (true[:2] - true[:2] @ rows.T @ rows).norm() > 0.1


@pytest.mark.parametrize("name", ["square-cubic", "tanh", "softplus"])
def test_the_joint_problem_has_autograds_slope_and_gauss_newton_matrix(name: str) -> None:
    played_round, true, basis = reduced(played(name, batch=2, width=40))
    near = played_round.observed.projected(basis)
    problem = JointProblem(near, played_round.activation, 2)
    at = problem.packed(true + 0.3 * drawn(2, 2), torch.tensor([20.0, 35.0]).double())
    derivative = torch.func.vmap(torch.func.grad(played_round.activation.function))

    def misses(unknowns: Tensor) -> Tensor:
        x, r = problem.unpacked(unknowns)
        z = near.w @ x.T
        g = (played_round.activation(z) @ r - near.g) * problem.of_g.sqrt()
        v = ((derivative(z.flatten()).view_as(z) * r) @ x - near.v) * problem.of_v.sqrt()
        return torch.cat([g, v.flatten()])

    jacobian = torch.func.jacfwd(misses)(at)
    found = problem.system(at[None])
    assert torch.allclose(found.cost[0], misses(at).square().sum() / 2)
    assert torch.allclose(found.gradient[0], jacobian.T @ misses(at))
    assert torch.allclose(found.curvature[0], jacobian.T @ jacobian)


def test_the_joint_problem_is_solved_from_nearby() -> None:
    played_round, true, basis = reduced(played("gelu", batch=3))
    r = output(played_round.x, played_round.weights, played_round.activation) - played_round.y
    near = played_round.observed.projected(basis)
    x, residues = joint(near, played_round.activation, true + 0.1 * drawn(3, 3), r * 1.1)
    assert torch.allclose(x, true, atol=1e-10)
    assert torch.allclose(residues, r)


def test_a_sigmoids_signs_come_from_the_sum_of_the_residues() -> None:
    played_round, true, basis = reduced(played("sigmoid", batch=3, bias=0.0))
    r = output(played_round.x, played_round.weights, played_round.activation) - played_round.y
    near, flip = played_round.observed.projected(basis), torch.tensor([-1.0, 1.0, -1.0]).double()
    x, residues = signed(near, played_round.activation, flip[:, None] * true, flip * r, bias=0.0)
    assert torch.allclose(x, true)
    assert torch.allclose(residues, r)


def test_pruned_entries_are_filled_in() -> None:
    low_rank = drawn(80, 2) @ drawn(2, 30, seed=1)
    reported = (drawn(80, 30, seed=2) > 0).double()
    assert torch.allclose(completed(low_rank * reported, reported, 2), low_rank, atol=1e-6)


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_refinement_counts_reported_entries_only(name: str) -> None:
    played_round = played(name)
    hidden = (drawn(*played_round.gradient.w.shape, seed=4) > 0.5).double()
    observed = played_round.observed
    observed = type(observed)(observed.w, observed.g, observed.v * (1 - hidden))
    start = played_round.x + 0.02 * drawn(*played_round.x.shape, seed=5)
    start = start / start.norm(dim=1, keepdim=True)
    r = torch.full((2,), 30.0).double()
    x, _ = refined(observed, played_round.activation, start, r, reported_entries(observed))
    assert torch.allclose(x, played_round.x, atol=1e-6)


@pytest.mark.parametrize("solve", [linear_least_squares, of_any_rank])
@pytest.mark.parametrize("rank", [2, 4])
def test_a_matrix_of_any_rank_gives_the_shortest_of_the_nearest(
    solve: Callable[[Tensor, Tensor], Tensor], rank: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right, b = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((9, rank), (rank, 4), (9, 3))
    )
    a = left @ right
    x = solve(a, b)
    assert torch.allclose(a.T @ (a @ x - b), torch.zeros(4, 3).double(), atol=1e-9), "no other is nearer"
    null = torch.linalg.svd(a)[2][rank:]  # what a does not see
    assert torch.allclose(null @ x, torch.zeros(4 - rank, 3).double(), atol=1e-9), "and none as near is shorter"
