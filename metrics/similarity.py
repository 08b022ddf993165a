"""How much of an input came back: a score for each pair (recovered, original), as pure functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from sweetspot.errors import UserError

SSIM_WINDOW = 11  # the Gaussian window of Wang et al. 2004 needs images of at least this size


def mse(recovered: Tensor, original: Tensor) -> Tensor:
    """Mean squared error of each pair, (B, …) × (B, …) → (B,).

    Example:
        >>> mse(torch.zeros(1, 2), torch.ones(1, 2))
        tensor([1.])
    """
    return (recovered - original).square().flatten(1).mean(dim=1)


def psnr(recovered: Tensor, original: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each pair of images in [0, 1], in dB, at most 100, (B, …) × (B, …) → (B,)."""
    return -10 * mse(recovered, original).clamp_min(1e-10).log10()


def mcs(recovered: Tensor, original: Tensor) -> Tensor:
    """Cosine similarity of each pair of vectors (its mean is the paper's MCS), (B, …) × (B, …) → (B,)."""
    return F.cosine_similarity(recovered.flatten(1), original.flatten(1), dim=1)


def ssim(recovered: Tensor, original: Tensor) -> Tensor:
    """Structural similarity of each pair of images in [0, 1], clipped at 0, (B, C, H, W) × (B, C, H, W) → (B,).

    The data range is 1, always: a range taken from the batch would make one image's score depend on the others.
    """
    if min(original.shape[-2:]) < SSIM_WINDOW:
        raise UserError(f"SSIM needs images of at least {SSIM_WINDOW} px; these are {tuple(original.shape[-2:])}")
    scores = structural_similarity_index_measure(recovered, original, data_range=1.0, reduction="none")
    assert isinstance(scores, Tensor)
    return scores.view(-1).clamp(0.0, 1.0)


def retrieval_rank(recovered: Tensor, original: Tensor, gallery: Tensor) -> Tensor:
    """How many gallery inputs lie strictly nearer to the recovered one than the true one does, (B,); 0: identified."""
    true = (recovered - original).flatten(1).square().sum(dim=1)  # (B,)
    # differences, not products: near-perfect recoveries would drown in the rounding of ‖a‖² − 2ab + ‖b‖²
    exact = "donot_use_mm_for_euclid_dist"
    distance = torch.cdist(recovered.flatten(1), gallery.flatten(1), compute_mode=exact).square()  # (B, N)
    return (distance < true[:, None] * (1 - 1e-4)).sum(dim=1)  # the true one is in the gallery, up to rounding
