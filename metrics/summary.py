"""Scores of many samples in the papers' form: mean ± std (worst), where the worst case is the best-recovered sample."""

from __future__ import annotations

from torch import Tensor

HIGHER_IS_WORSE = {"ssim": True, "psim": True, "psnr": True, "mcs": True, "mse": False, "rank": False}


def summary(name: str, scores: Tensor) -> dict[str, float]:
    """Mean, standard deviation, worst case, and the mean of the worst decile of one metric's scores (B,).

    Worst is for the client: the largest SSIM, the smallest MSE.

    Example:
        >>> import torch
        >>> summary("ssim", torch.tensor([0.2, 0.4]))["worst"] == torch.tensor(0.4)
        tensor(True)
    """
    ordered = scores.double().cpu().sort(descending=HIGHER_IS_WORSE[name]).values
    decile = ordered[: max(1, round(len(ordered) / 10))]
    return {
        "mean": ordered.mean().item(),
        "std": ordered.std(unbiased=False).item(),
        "worst": ordered[0].item(),
        "worst_decile": decile.mean().item(),
    }


def in_words(figures: dict[str, float]) -> str:
    """A summary as the papers print it.

    Example:
        >>> in_words({"mean": 0.14, "std": 0.11, "worst": 0.48})
        '0.14 ± 0.11 (0.48)'
    """
    return f"{figures['mean']:.2f} ± {figures['std']:.2f} ({figures['worst']:.2f})"
