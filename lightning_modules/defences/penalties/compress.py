"""Compression measured in noise: what a Gaussian release lets through beyond the class, in nats.

With noise of scale σ on h, mean ‖h − c_y‖²/2σ² bounds I(X; Z̃ | Y): the loss minimises what it certifies. `vib` is the
variational information bottleneck with the release's own σ: all centres at 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties.base import PENALTIES, Penalty, Place
from sweetspot.lightning_modules.defences.releases.base import in_single

MOMENTUM = 0.05  # of the class centres: they follow the last twenty batches that have the class


def compression(h: Tensor, centres: Tensor, sigma: float) -> Tensor:
    """mean_i ‖h_i − c_i‖² / 2σ², (B, …) and (B, d) → a scalar, in nats.

    Example:
        >>> compression(torch.tensor([[1.0, 1.0]]), torch.zeros(1, 2), sigma=1.0)
        tensor(1.)
    """
    return (h.flatten(1) - centres).square().sum(dim=1).mean() / (2 * sigma**2)


class MeasuredInNoise(Penalty):
    """A penalty in units of the release's own noise."""

    sets_scale = True
    needs_noise = True

    def put(self, place: Place) -> None:
        super().put(place)
        assert place.sigma is not None  # or it would have been refused
        self.sigma = place.sigma


@PENALTIES("compress")
class Compress(MeasuredInNoise):
    """‖h − c_y‖²/2σ² to the class's own centre, a moving average of its members."""

    def put(self, place: Place) -> None:
        super().put(place)
        width = place.z_shape[-1] if place.is_text else torch.Size(place.z_shape).numel()
        self.register_buffer("centres", torch.zeros(place.classes, width))
        self.register_buffer("seen", torch.zeros(place.classes))  # in how many batches
        self.centres: Tensor
        self.seen: Tensor

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        if self.training:
            self.follow(z.detach().flatten(1), y)
        return compression(z, self.centres[y], self.sigma)

    @torch.no_grad()
    def follow(self, z: Tensor, y: Tensor) -> None:
        """Move the centres of the classes in a batch towards their members; other classes cost nothing.

        The first batches of a class count alike: a token that is rare would else stay where it was seen first.
        """
        # A class goes by the first of its members in the batch: which classes there are, a step would have to wait for.
        place = torch.arange(len(y), device=y.device)
        first = torch.full((len(self.seen),), len(y), device=y.device).scatter_reduce_(0, y, place, "amin")[y]  # (B,)
        is_first, members = first == place, torch.zeros_like(z[:, 0], dtype=self.centres.dtype)
        count = members.index_add(0, first, torch.ones_like(members)).clamp_min(1)[:, None]
        z = z.to(self.centres)
        mean = torch.zeros_like(z).index_add_(0, first, z) / count
        seen = self.seen[y] + 1
        step = (1 / seen).clamp_min(MOMENTUM)[:, None]
        moved = torch.where(is_first[:, None], step * (mean - self.centres[y]), 0.0)
        self.centres.index_add_(0, y, moved)
        self.seen.index_add_(0, y, is_first.to(self.seen))


@PENALTIES("vib")
class VIB(MeasuredInNoise):
    """KL(N(h, σ²) ‖ N(0, 1)) summed over entries, in nats."""

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        return gaussian_kl(z, self.sigma)


def gaussian_kl(h: Tensor, sigma: float) -> Tensor:
    """mean_i Σ_d ½(σ² + h_id² − 1 − ln σ²), (B, …) → a scalar."""
    h = in_single(h)
    variance = torch.tensor(sigma**2, dtype=h.dtype)
    return 0.5 * (h.flatten(1).square() + variance - 1 - variance.log()).sum(dim=1).mean()
