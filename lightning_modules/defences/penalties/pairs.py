"""Sums over pairs of representations in a batch, as matrices (B, B): no loop, and no step that waits for a number."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sweetspot.lightning_modules.defences.penalties.base import Penalty
from sweetspot.options import option

# a function of squared distances, with its derivative: d ↦ (f(d), f′(d))
Curve = Callable[[Tensor], tuple[Tensor, Tensor]]


class Pairwise(Penalty):
    """A penalty on the distances between pairs of a batch."""

    normalise: bool = option(True, "whether the penalty sees representations scaled to unit norm, as in the paper")
    partners: int = option(
        0,
        "0 for all pairs that the penalty compares; else how many others of the batch each example is paired with, for "
        "classes that are many and ragged, such as tokens (8 for a language model)",
        least=0,
    )


def unit_norm(z: Tensor) -> Tensor:
    """Representations as unit vectors, (B, …) → (B, d). A dead one has no direction: it stays zero, no gradient."""
    z = z.flatten(1)
    squared = z.square().sum(dim=1, keepdim=True)  # (B, 1)
    alive = squared > torch.finfo(z.dtype).tiny
    return z * torch.where(alive, squared, torch.inf).rsqrt()


def squared_distances(z: Tensor) -> Tensor:
    """‖z_i − z_j‖² for all pairs, (B, d) → (B, B).

    From one matrix product of the *centred* rows: centring changes no distance, and keeps the digits that
    ‖a‖² + ‖b‖² − 2ab would lose when all representations lie close together, which is what MixCon makes them do.
    (Two tight clusters far apart still lose some: a few per cent at distances of 1e-4 within them, in fp32.)
    """
    z = z - z.mean(dim=0, keepdim=True)
    gram = z @ z.T  # (B, B)
    squared = gram.diagonal()
    return torch.sub(squared[:, None] + squared, gram, alpha=2).clamp_min_(0.0)


def same_class(y: Tensor) -> Tensor:
    """Whether two examples share their class, (B,) → (B, B) of bool."""
    return y[:, None] == y


def sum_over_pairs(z: Tensor, weight: Tensor, curve: Curve, epsilon: float = 0.0, normalise: bool = True) -> Tensor:
    """Σ_ij weight_ij · f(‖z_i − z_j‖²), a scalar, always in full precision.

    Args:
        z: representations (B, …).
        weight: how much each pair counts, (B, B), symmetric.
        curve: f and its derivative.
        epsilon: squared distances are clamped to [ε, 1/ε] first; 0 for not at all.
        normalise: whether representations are scaled to unit ℓ2 norm first.
    """
    z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
    with torch.autocast(z.device.type, enabled=False):
        total: Tensor = _SumOverPairs.apply(unit_norm(z) if normalise else z.flatten(1), weight.to(z), curve, epsilon)
    return total


class _SumOverPairs(torch.autograd.Function):
    """The sum, and its gradient 4 · (diag(Σ_j w_ij) − w) z with w = weight · f′, which is one matrix product."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, curve: Curve, epsilon: float) -> Tensor:
        distance = squared_distances(z)
        if epsilon > 0:
            clamped = distance.clamp(epsilon, 1 / epsilon)
            value, derivative = curve(clamped)
            derivative = derivative * (clamped == distance)
        else:
            value, derivative = curve(distance)
        ctx.save_for_backward(z, weight * derivative)
        return (weight * value).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, w = ctx.saved_tensors
        gradient = torch.sub(z * w.sum(dim=1, keepdim=True), w @ z).mul_(4 * upstream)
        return gradient, None, None, None


def across_classes(y: Tensor, partners: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs (left, right), and 1 where their classes differ, each (partners · B,): every example with some others.

    For many ragged classes, such as a language model's tokens, where Eq. 1's p would be 0 or 1. The partners are the
    batch shifted by random offsets, so that the cost is linear in the batch and every pair is as likely as any other.
    """
    n = len(y)
    offsets = 1 + torch.randperm(n - 1)[:partners]  # on the CPU, the same on every device
    left = torch.arange(n, device=y.device).repeat(len(offsets))
    right = (left + offsets.to(y.device, non_blocking=True).repeat_interleave(n)) % n  # no step waits for them
    return left, right, (y[left] != y[right]).float()


def within_classes(y: Tensor, partners: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs (left, right), and 1 where their classes agree, each (partners · B,): neighbours when sorted by class."""
    order = y.argsort(stable=True)
    shifts = [order.roll(-k) for k in range(1, min(partners, len(y) - 1) + 1)]
    left, right = order.repeat(len(shifts)), torch.cat(shifts)
    wrapped = torch.cat([torch.arange(len(y), device=y.device) >= len(y) - k for k in range(1, len(shifts) + 1)])
    return left, right, ((y[left] == y[right]) & ~wrapped).float()


def mean_over_listed_pairs(
    z: Tensor, pairs: tuple[Tensor, Tensor, Tensor], curve: Curve, epsilon: float = 0.0, normalise: bool = True
) -> Tensor:
    """The mean of f(‖z_i − z_j‖²) over listed pairs (i, j, weight), a scalar, always in full precision.

    Where no pair counts the result is NaN, never a silent zero.
    """
    left, right, weight = pairs
    z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
    with torch.autocast(z.device.type, enabled=False):
        z = unit_norm(z) if normalise else z.flatten(1)
        distance = (z[left] - z[right]).square().sum(dim=1)
        value, _ = curve(distance.clamp(epsilon, 1 / epsilon) if epsilon > 0 else distance)
        return (weight.to(z) * value).sum() / weight.sum()
