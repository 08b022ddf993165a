"""All samples at once: nonlinear least squares on the observed gradient itself.

In the B coordinates of the samples' span the unknowns are B·(B + 1) and the equations m·(B + 1), whatever d is. JᵀJ is
built from its blocks in O(m·B⁴), without J.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.least_squares import System, levenberg_marquardt
from sweetspot.attacks.gradients.moments import Observed

STEPS = 60
SOLVED = 1e-28
ENUMERATED = 16  # signs of a batch that are all tried


class JointProblem:
    """½·‖g − ĝ‖² / ‖g‖² + ½·‖V − V̂‖² / ‖V‖² over all samples and residues.

    Args:
        observed: the gradient, in all dimensions or in the coordinates of the samples' span.
        activation: σ.
        batch: B.
        reported: 1 for the entries of g and v that count, 0 for those that a client has pruned; None: all count.
    """

    def __init__(
        self, observed: Observed, activation: Activation, batch: int, reported: Observed | None = None
    ) -> None:
        self.observed, self.activation, self.batch, self.reported = observed, activation, batch, reported
        self.of_g = 1 / observed.g.square().sum().clamp_min(1e-300)
        self.of_v = 1 / observed.v.square().sum().clamp_min(1e-300)

    def packed(self, x: Tensor, r: Tensor) -> Tensor:
        """Samples (B, k) and residues (B,) as one vector of unknowns."""
        return torch.cat([x, r[:, None]], dim=1).flatten()

    def unpacked(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `packed`."""
        rows = unknowns.view(self.batch, -1)
        return rows[:, :-1], rows[:, -1]

    def cost_and_gradient(self, x: Tensor, r: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The cost, its gradient as `packed`, and σ, σ', σ'' at all W·x (m, B); O(m·B·k)."""
        w = self.observed.w
        value, first, second = self.activation.derivatives(w @ x.T, 2)  # (m, B)
        miss_g = value @ r - self.observed.g  # (m,)
        miss_v = (first * r) @ x - self.observed.v  # (m, k)
        if self.reported is not None:
            miss_g, miss_v = miss_g * self.reported.g, miss_v * self.reported.v
        along = miss_v @ x.T  # (m, B)
        pulled = self.of_g * first * miss_g[:, None] + self.of_v * second * along
        of_x = r[:, None] * (pulled.T @ w + self.of_v * (first.T @ miss_v))
        of_r = self.of_g * (value.T @ miss_g) + self.of_v * (first * along).sum(dim=0)
        cost = (self.of_g * miss_g.square().sum() + self.of_v * miss_v.square().sum()) / 2
        return cost, self.packed(of_x, of_r), [value, first, second]

    def system(self, unknowns: Tensor) -> System:
        """The problem at one point (1, n), for few dimensions."""
        x, r = self.unpacked(unknowns[0])
        cost, gradient, derivatives = self.cost_and_gradient(x, r)
        return System(cost[None], gradient[None], self.curvature(x, r, *derivatives)[None])

    def curvature(self, x: Tensor, r: Tensor, value: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """JᵀJ (n, n), blockwise: a block pairs sample i with sample l."""
        w, (batch, size) = self.observed.w, x.shape
        squares = pairs(w, w)  # (m, k²)
        dots, residues = x @ x.T, torch.outer(r, r)
        weight = self.of_g * pairs(first, first) + self.of_v * dots.flatten() * pairs(second, second)  # (m, B²)
        of_xx = (weight.T @ squares).view(batch, batch, size, size)
        crossed = (pairs(first, second).T @ w).view(batch, batch, size)  # Σ_j σ'_i·σ''_l·w
        of_xx = of_xx + self.of_v * x[None, :, :, None] * crossed[:, :, None]
        of_xx = of_xx + self.of_v * x[:, None, None] * crossed.transpose(0, 1)[:, :, :, None]
        gram = first.T @ first
        of_xx = of_xx + self.of_v * gram[:, :, None, None] * torch.eye(size, dtype=x.dtype, device=x.device)
        of_xr = self.of_g * (pairs(first, value).T @ w).view(batch, batch, size)
        of_xr = of_xr + self.of_v * (gram[:, :, None] * x + dots[:, :, None] * crossed.transpose(0, 1))
        of_rr = self.of_g * (value.T @ value) + self.of_v * gram * dots
        whole = x.new_zeros(batch, size + 1, batch, size + 1)
        whole[:, :size, :, :size] = (residues[:, :, None, None] * of_xx).permute(0, 2, 1, 3)
        whole[:, :size, :, size] = (r[:, None, None] * of_xr).permute(0, 2, 1)
        whole[:, size, :, :size] = whole[:, :size, :, size].permute(2, 0, 1)
        whole[:, size, :, size] = of_rr
        return whole.view(batch * (size + 1), batch * (size + 1))


def pairs(first: Tensor, second: Tensor) -> Tensor:
    """first_i·second_l for all pairs, (m, B) and (m, B) → (m, B²)."""
    return (first[:, :, None] * second[:, None]).flatten(1)


def joint(
    observed: Observed, activation: Activation, x: Tensor, r: Tensor, steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Samples (B, k) and residues (B,) after Levenberg-Marquardt on the whole gradient."""
    problem = JointProblem(observed, activation, len(x))
    reached, _ = levenberg_marquardt(problem.system, problem.packed(x, r)[None], steps, SOLVED)
    return problem.unpacked(reached[0])


def signed(observed: Observed, activation: Activation, x: Tensor, r: Tensor, bias: float) -> tuple[Tensor, Tensor]:
    """Samples and residues with the signs that ∂L/∂a asks for, where σ is odd but for a constant c (sigmoid).

    ∂L/∂W does not change with (x_i, r_i) → (−x_i, −r_i), and ∂L/∂a only in its constant part c·Σ_i r_i: the signs that
    give the sum that was seen are the right ones. All with the bias's sign come first (Remark 1).
    """
    if not activation.is_odd_but_for_a_constant:
        return x, r
    sign = torch.where(r * bias < 0, -1.0, 1.0).to(x)
    x, r = sign[:, None] * x, sign * r
    if activation.is_odd or len(x) > ENUMERATED:
        return x, r
    constant = activation(torch.zeros(1).to(x))
    seen = (observed.g - (activation(observed.w @ x.T) - constant) @ r).mean() / constant
    signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=len(x)))).to(x)  # (2^B, B)
    best = signs[(signs @ r - seen).abs().argmin()]
    return best[:, None] * x, best * r
