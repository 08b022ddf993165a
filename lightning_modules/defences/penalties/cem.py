"""CEM (CVPR 2025): a Gaussian mixture in every class, whose clusters may not spread wider than the noise covers."""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties.base import PENALTIES, Place
from sweetspot.lightning_modules.defences.penalties.compress import MeasuredInNoise
from sweetspot.options import option

FLOOR, SHARE = 0.01, 0.125  # the paper's: log(v + .01) against log(.125σ² + .01)
ROUNDS = 10  # of k-means


def cem_loss(z: Tensor, y: Tensor, centres: Tensor, sigma: float) -> Tensor:
    """Σ_c Σ_j w_cj · max(0, log(v_cj + .01) − log(.125σ² + .01)) / classes, a scalar.

    v_cj is the mean squared distance, over members and dimensions, of the batch's examples of class c to their nearest
    centre j; w_cj the share of the class's examples that are nearest to it. Classes that are not in the batch count 0.

    Args:
        z: representations (B, …).
        y: classes (B,).
        centres: of every class (classes, clusters, d).
        sigma: of the release.
    """
    z = z.flatten(1)
    classes, clusters, _ = centres.shape
    squared = (z[:, None] - centres[y]).square().mean(dim=2)  # (B, clusters)
    nearest, cluster = squared.min(dim=1)  # (B,)
    cell = y * clusters + cluster
    members = nearest.new_zeros(classes * clusters).index_add(0, cell, torch.ones_like(nearest))
    spread = torch.zeros_like(members).index_add(0, cell, nearest) / members.clamp_min(1)
    of_class = members.view(classes, clusters).sum(dim=1, keepdim=True).clamp_min(1)
    weight = (members.view(classes, clusters) / of_class).flatten()
    least = torch.full_like(spread[0], SHARE * sigma**2 + FLOOR).log()  # made where it is used: no step waits for it
    return (weight * ((spread + FLOOR).log() - least).clamp_min(0)).sum() / classes


def clustered(z: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Centres (clusters, d) of examples z (N, d) by k-means from random examples; an empty cluster keeps its centre."""
    chosen = (
        torch.randint(len(z), (clusters,), generator=generator)
        if len(z) < clusters
        else torch.randperm(len(z), generator=generator)[:clusters]
    )
    centres = z[chosen.to(z.device)].clone()
    for _ in range(ROUNDS):
        nearest = torch.cdist(z, centres).argmin(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, z)
        count = torch.bincount(nearest, minlength=clusters).to(z)[:, None]
        centres = torch.where(count > 0, sums / count.clamp_min(1), centres)
    return centres


@PENALTIES("cem")
class CEM(MeasuredInNoise):
    """Clusters of every class, found anew each epoch, that may not be wider than the noise."""

    takes_text = False
    wants_sample = 5000
    clusters: int = option(5, "clusters in every class", least=1)

    def put(self, place: Place) -> None:
        super().put(place)
        width = torch.Size(place.z_shape).numel()
        self.register_buffer("centres", torch.zeros(place.classes, self.clusters, width))
        self.centres: Tensor

    def begin_epoch(self, z: Tensor, y: Tensor) -> None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        for c in y.unique().tolist():
            self.centres[c] = clustered(z[y == c].flatten(1), self.clusters, generator)

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        return cem_loss(z, y, self.centres, self.sigma)
