"""Pairs of representations in a batch: distances and who belongs to which class, without a loop and without a sync."""

import torch
from torch import Tensor


def unit_norm(z: Tensor) -> Tensor:
    """Representations as unit vectors, (B, …) → (B, d). A dead one has no direction: it stays zero, no gradient."""
    z = z.flatten(1)
    squared = z.square().sum(dim=1, keepdim=True)  # (B, 1)
    alive = squared > torch.finfo(z.dtype).tiny
    return torch.where(alive, z * torch.where(alive, squared, 1.0).rsqrt(), 0.0)


def squared_distances(z: Tensor) -> Tensor:
    """‖z_i − z_j‖² for all pairs, (B, d) → (B, B).

    From one matrix product of the *centred* rows: centring changes no distance, and keeps the digits that
    ‖a‖² + ‖b‖² − 2ab would lose when all representations lie close together, which is what MixCon makes them do.
    """
    z = z - z.mean(dim=0, keepdim=True)
    gram = z @ z.T  # (B, B)
    squared = gram.diagonal()
    return (squared[:, None] + squared[None, :] - 2 * gram).clamp_min(0.0)


def same_class(y: Tensor) -> Tensor:
    """Whether two examples share their class, (B,) → (B, B) of bool."""
    return y[:, None] == y[None, :]
