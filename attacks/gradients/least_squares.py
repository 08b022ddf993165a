"""Least squares: linear, of whatever rank, and Levenberg-Marquardt on many small problems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

PATIENCE = 8  # steps without progress after which a problem is left
LOOK_EVERY = 10  # steps between two looks at who is finished, where a look waits for the device


def linear_least_squares(a: Tensor, b: Tensor) -> Tensor:
    """The shortest x (n, k) for which a·x is nearest to b (m, k), whatever the rank of a (m, n)."""
    if a.device.type == "cpu":
        found: Tensor = torch.linalg.lstsq(a, b, driver="gelsy").solution
        return found
    return of_any_rank(a, b)


def of_any_rank(a: Tensor, b: Tensor) -> Tensor:
    """The same by singular values: on a GPU, `lstsq` takes for granted that the rank is full."""
    inverse: Tensor = torch.linalg.pinv(a, rtol=torch.finfo(a.dtype).eps * max(a.shape))
    return inverse @ b


@dataclass(frozen=True)
class System:
    """Least-squares problems at R points of n unknowns each.

    Args:
        cost: half the sum of squares (R,).
        gradient: of the cost (R, n).
        curvature: JᵀJ, the Gauss-Newton matrices (R, n, n).
    """

    cost: Tensor
    gradient: Tensor
    curvature: Tensor

    def of(self, chosen: Tensor) -> System:
        """The chosen problems (R,) alone."""
        return System(self.cost[chosen], self.gradient[chosen], self.curvature[chosen])

    def where(self, chosen: Tensor, other: System) -> System:
        """This system at the chosen points (R,), the other one elsewhere."""
        return System(
            torch.where(chosen, self.cost, other.cost),
            torch.where(chosen[:, None], self.gradient, other.gradient),
            torch.where(chosen[:, None, None], self.curvature, other.curvature),
        )


def levenberg_marquardt(
    system: Callable[[Tensor], System], start: Tensor, steps: int, floor: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Where each start ends (R, n), and its cost there (R,). A step that makes things worse is not taken.

    Args:
        system: the problems at points (R, n).
        start: where to begin (R, n).
        steps: the most steps.
        floor: the cost at which a problem is solved.
    """
    ended, costs = start.clone(), torch.empty_like(start[:, 0])
    live, at, now = torch.arange(len(start), device=start.device), start, system(start)
    damping, idle = torch.full_like(now.cost, 1e-3), torch.zeros_like(now.cost)
    going, look_every = torch.ones_like(now.cost, dtype=torch.bool), 1 if start.device.type == "cpu" else LOOK_EVERY
    for number in range(1, steps + 1):
        trial = at - step(now, damping)
        then = system(trial)
        better = going & (then.cost < now.cost) & then.gradient.isfinite().all(dim=1)
        idle = torch.where(better & (then.cost < now.cost * (1 - 1e-3)), 0, idle + 1)
        at, now = torch.where(better[:, None], trial, at), then.where(better, now)
        damping = torch.where(better, damping / 5, damping * 4).clamp(1e-15, 1e12)
        ended[live], costs[live] = at, now.cost
        going = going & (now.cost > floor) & (idle < PATIENCE)
        if number % look_every:
            continue
        if not going.any():
            break
        live, at, now = live[going], at[going], now.of(going)
        damping, idle = damping[going], idle[going]
        going = going[going]
    return ended, costs


def step(system: System, damping: Tensor) -> Tensor:
    """(JᵀJ + damping·diag(JᵀJ))⁻¹·gradient of each problem (R, n); a touch of the identity holds null directions."""
    scale = system.curvature.diagonal(dim1=1, dim2=2).clamp_min(0.0)
    ridge = damping[:, None] * scale + 1e-14 * scale.amax(dim=1, keepdim=True) + 1e-300
    move: Tensor = torch.linalg.solve_ex(system.curvature + torch.diag_embed(ridge), system.gradient)[0]
    return move.nan_to_num(0.0, 0.0, 0.0)
