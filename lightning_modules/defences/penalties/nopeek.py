"""NoPeek (Vepakomma et al.): the distance correlation of inputs and representations over the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties.base import PENALTIES, Penalty


def distances(x: Tensor) -> Tensor:
    """‖x_i − x_j‖₂ for all pairs, (B, …) → (B, B); the root's gradient at 0 is 0, not infinite."""
    flat = x.flatten(1)
    flat = flat - flat.mean(dim=0, keepdim=True)  # changes no distance, and keeps digits
    gram = flat @ flat.T
    square = gram.diagonal()
    squared = (square[:, None] + square - 2 * gram).clamp_min(0)
    positive = squared > torch.finfo(squared.dtype).eps * squared.detach().amax()
    return torch.where(positive, squared.where(positive, torch.ones_like(squared)).sqrt(), 0.0)


def centred(distance: Tensor) -> Tensor:
    """A matrix of distances without its row and column means, (B, B)."""
    return distance - distance.mean(dim=0, keepdim=True) - distance.mean(dim=1, keepdim=True) + distance.mean()


def distance_correlation(x: Tensor, z: Tensor) -> Tensor:
    """dCor = sqrt(dCov²(x, z) / sqrt(dVar²(x) · dVar²(z))) of two batches (B, …), a scalar in [0, 1].

    With unsquared Euclidean distances: about 0 where x and z are independent (in large batches), 1 for a rotation.

    Example:
        >>> x = torch.randn(8, 3)
        >>> bool((distance_correlation(x, 2 * x) - 1).abs() < 1e-3)
        True
    """
    a, b = centred(distances(x)), centred(distances(z))
    variances = (a.square().mean() * b.square().mean()).clamp_min(torch.finfo(a.dtype).tiny)
    return ((a * b).mean().clamp_min(0) * variances.rsqrt() + torch.finfo(a.dtype).tiny).sqrt()


@PENALTIES("nopeek")
class NoPeek(Penalty):
    """What z tells about x, by the distances between the examples of a batch."""

    takes_text = False

    def least_batch(self, classes: int) -> int:
        return 4  # with fewer every distance correlation is near 1

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            return distance_correlation(x.float(), z.float())
