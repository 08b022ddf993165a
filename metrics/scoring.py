"""Every metric of one attack's reconstructions, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass

import lpips
import torch
from torch import Tensor, nn

from sweetspot.errors import UserError
from sweetspot.metrics.perceptual import psim
from sweetspot.metrics.similarity import SSIM_WINDOW, mcs, mse, psnr, retrieval_rank, ssim


@dataclass(frozen=True)
class Scorer:
    """The only one who sees both sides: true inputs, and what an attack made of their representations.

    Args:
        original: the true inputs (B, …).
        classes: their classes (B,).
        gallery: inputs among which the true ones are searched (N, …), the true ones among them.
        perceptual: LPIPS, where its weights can be had.
        classifier: an independently trained classifier, where there is one.
    """

    original: Tensor
    classes: Tensor
    gallery: Tensor
    perceptual: lpips.LPIPS | None = None
    classifier: nn.Module | None = None

    @torch.no_grad()
    def score(self, recovered: Tensor) -> dict[str, Tensor]:
        """Each metric that fits these inputs, (B,): for images SSIM, PSIM, PSNR and MSE, for vectors MSE and MCS.

        Images are clipped to [0, 1] first, as anyone would who looks at them. `recognised` is 1 where the classifier
        sees the true class, `rank` how many inputs of the gallery lie nearer than the true one.
        """
        if recovered.shape != self.original.shape:
            raise UserError(f"{tuple(recovered.shape)} was recovered where {tuple(self.original.shape)} was attacked")
        recovered = recovered.to(self.original.device).nan_to_num()
        scores: dict[str, Tensor] = {}
        if self.original.ndim == 2:
            scores["mcs"] = mcs(recovered, self.original)
        else:
            recovered = recovered.clamp(0, 1)
            if min(self.original.shape[-2:]) >= SSIM_WINDOW:
                scores["ssim"] = ssim(recovered, self.original)
            if self.perceptual is not None:
                scores["psim"] = psim(recovered, self.original, self.perceptual)
            scores["psnr"] = psnr(recovered, self.original)
        scores["mse"] = mse(recovered, self.original)
        if self.classifier is not None:
            scores["recognised"] = (self.classifier(recovered).argmax(dim=1) == self.classes).float()
        scores["rank"] = retrieval_rank(recovered, self.original, self.gallery).float()
        return scores
