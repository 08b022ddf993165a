"""Where the gradient is not exact: least squares in all d dimensions, on the entries that were reported."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.least_squares import linear_least_squares
from sweetspot.attacks.gradients.moments import Observed
from sweetspot.attacks.gradients.polish import JointProblem
from sweetspot.attacks.gradients.subspace import row_span

ITERATIONS = 500
SWEEPS = 60  # of completion, and of the alternation
DOUBTFUL = 0.2  # |w·x| / ‖x‖, over B, below which it is not sure on which side of 0 a unit is
COUPLED = 2000  # the most unknowns of one dense system
LARGE = 1e24  # the objective in units of its rounding: scipy stops at changes small against max(objective, 1)


def reported_entries(observed: Observed) -> Observed:
    """1 where an entry of g and v was reported, 0 where it is exactly 0: the client has pruned it."""
    return Observed(observed.w, (observed.g != 0).to(observed.g), (observed.v != 0).to(observed.v))


def refined(
    observed: Observed, activation: Activation, x: Tensor, r: Tensor, reported: Observed | None = None
) -> tuple[Tensor, Tensor]:
    """Samples (B, d) and residues (B,) that explain the reported entries best, from a start that is near."""
    if activation.slopes is not None:
        return alternated(observed, activation, x, r, reported)
    problem = JointProblem(observed, activation, len(x), reported)
    unit = torch.cat([x.abs().amax(dim=1, keepdim=True).expand_as(x), r.abs()[:, None]], dim=1).flatten()

    def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        cost, gradient, _ = problem.cost_and_gradient(*problem.unpacked(torch.from_numpy(scaled).to(x) * unit))
        return LARGE * float(cost), LARGE * (gradient * unit).cpu().numpy()

    start = (problem.packed(x, r) / unit).cpu().numpy()
    options = {"maxiter": ITERATIONS, "maxfun": 2 * ITERATIONS, "maxcor": 30, "ftol": 1e-9, "gtol": 0.0}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return problem.unpacked(torch.from_numpy(found.x).to(x) * unit)


def alternated(
    observed: Observed, activation: Activation, x: Tensor, r: Tensor, reported: Observed | None
) -> tuple[Tensor, Tensor]:
    """The same where σ' is a step: given who is active, r_i·x_i is a linear least-squares problem; and again.

    Units so near their threshold that a small error of x decides on which side they are do not take part.
    """
    norm, sign = torch.linalg.vector_norm(x, dim=1), r.sign()
    for _ in range(SWEEPS):
        reach = observed.w @ x.T  # (m, B)
        sure = (reach.abs() > DOUBTFUL / len(x) * norm).all(dim=1)
        _, first = activation.derivatives(reach[sure], 1)
        weighted = sign[:, None] * active_sums(
            first, observed.of_units(sure), None if reported is None else reported.of_units(sure)
        )
        size = torch.linalg.vector_norm(weighted, dim=1)
        now = weighted * (norm / size.clamp_min(1e-300))[:, None]
        settled = bool(torch.equal(now, x))
        x, r = now, sign * size / norm
        if settled:
            break
    return x, r


def active_sums(first: Tensor, observed: Observed, reported: Observed | None) -> Tensor:
    """r_i·x_i as rows (B, d), given σ' (m, B), from all reported entries.

    With σ homogeneous g_j = Σ_i σ'_ji·w_j·(r_i·x_i) is linear too. It repeats what the whole of v says; where a pruned
    v lacks an entry for every unit that shows it, only g has it.
    """
    (batch, dim), width = (first.shape[1], observed.w.shape[1]), len(first)
    if reported is None or batch * dim > COUPLED:
        return combinations(first, observed.v, None if reported is None else reported.v)
    of_g = observed.v.square().sum() / observed.g.square().sum().clamp_min(1e-300)
    rows = (first[:, :, None] * observed.w[:, None]).view(width, -1) * reported.g[:, None]  # (m, B·d)
    gram = (of_g * rows.T @ rows).view(batch, dim, batch, dim)
    for_each = (first[:, :, None] * first[:, None]).flatten(1).T @ reported.v  # (B², d)
    gram.diagonal(dim1=1, dim2=3).add_(for_each.view(batch, batch, dim))
    right = of_g * rows.T @ observed.g + (first.T @ (observed.v * reported.v)).flatten()
    whole = gram.view(batch * dim, -1)
    ridge = 1e-13 * whole.diagonal().mean() * torch.eye(batch * dim).to(right)
    solved: Tensor = torch.linalg.solve_ex(whole + ridge, right)[0]
    return solved.view(batch, dim)


def combinations(first: Tensor, v: Tensor, reported: Tensor | None) -> Tensor:
    """The rows y (B, d) for which first·y is nearest to v (m, d), on the reported entries (m, d)."""
    if reported is None:
        return linear_least_squares(first, v)
    batch = first.shape[1]
    gram = ((first[:, :, None] * first[:, None]).flatten(1).T @ reported).T.view(-1, batch, batch)  # (d, B, B)
    ridge = 1e-12 * torch.eye(batch).to(v) * gram.amax()
    solved: Tensor = torch.linalg.solve_ex(gram + ridge, (first.T @ (v * reported)).T)[0]
    return solved.T


def completed(v: Tensor, reported: Tensor, batch: int, seed: int = 0) -> Tensor:
    """v (m, d) with what was not reported filled in by a matrix of rank B, by alternating least squares."""
    right = row_span(v, batch, seed).basis.T  # (B, d)
    for _ in range(SWEEPS):
        left = combinations(right.T, v.T, reported.T).T  # (m, B)
        right = torch.linalg.qr(combinations(left, v, reported).T)[0].T
    left = combinations(right.T, v.T, reported.T).T
    return torch.where(reported > 0, v, left @ right)
