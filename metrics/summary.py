"""Scores of many samples in the papers' form: mean ± std (worst), where the worst case is the best-recovered sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

HIGHER_IS_WORSE = {
    "ssim": True,
    "psim": True,
    "psnr": True,
    "mcs": True,
    "recognised": True,
    "mse": False,
    "rank": False,
}
FLOOR = "prototype"  # the attack that knows only the class; what others recover beyond it is more than the label


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


def worst_case(attacks: dict[str, Any]) -> dict[str, Any]:
    """For every sample and metric the attack that recovered it best, summarised: the headline of a run.

    The floor is no attack of its own. Where attacks saw different numbers of samples, those with the most count.

    Example:
        >>> both = {"a": [0.1, 0.9], "b": [0.5, 0.5]}
        >>> found = worst_case({key: {"samples": 2, "scores": {"ssim": each}} for key, each in both.items()})
        >>> found["ssim"]["mean"]
        0.7
    """
    real = {key: attack for key, attack in attacks.items() if key != FLOOR}
    most = max((attack["samples"] for attack in real.values()), default=0)
    real = {key: attack for key, attack in real.items() if attack["samples"] == most}
    if not real:
        return {}
    worst: dict[str, Any] = {"attacks": sorted(real), "samples": most}
    for name in HIGHER_IS_WORSE:
        rows = [attack["scores"][name] for attack in real.values() if name in attack["scores"]]
        if rows:
            scores = torch.tensor(rows, dtype=torch.float64)  # (attacks, samples)
            worst[name] = summary(name, scores.amax(dim=0) if HIGHER_IS_WORSE[name] else scores.amin(dim=0))
    return worst
