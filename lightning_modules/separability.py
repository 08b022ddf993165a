"""Separability: the smallest, mean and largest distance of two representations, what λ and β control (Figure 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.penalties.pairs import squared_distances, unit_norm

SAMPLES = 2000  # two million pairs: the mean is good to three digits, and deep cuts still fit in memory


def pairwise_distances(z: Tensor) -> dict[str, float]:
    """min (δ_h), mean and max (Δ_H) of ‖z_i − z_j‖₂ over all pairs i < j of z (N, …).

    Example:
        >>> pairwise_distances(torch.tensor([[0.0], [1.0], [3.0]]))
        {'min': 1.0, 'mean': 2.0, 'max': 3.0}
    """
    if len(z) < 2:
        raise UserError(f"separability needs at least 2 representations; got {len(z)}")
    # double precision: two close representations must not drown in the rounding of far ones
    squared = squared_distances(z.flatten(1).double())
    i, j = torch.triu_indices(len(z), len(z), offset=1)
    distances = squared[i, j].sqrt()
    return {"min": distances.min().item(), "mean": distances.mean().item(), "max": distances.max().item()}


def separability(z: Tensor) -> dict[str, Any]:
    """Pairwise distances of unit-norm representations (what MixCon's loss sees), and of the raw ones beside them."""
    if len(z) > SAMPLES:
        raise ValueError(f"separability takes at most {SAMPLES:,} representations, a sample of them; got {len(z):,}")
    z = z.cpu()
    return {**pairwise_distances(unit_norm(z)), "raw": pairwise_distances(z), "samples": len(z)}
