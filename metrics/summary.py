"""Scores of many samples: mean ± std (most leaked), where `worst` is the sample of which most came back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sweetspot.runs.record import HIGHER_IS_WORSE as HIGHER_IS_WORSE  # for whoever works with scores, too

FLOOR = "prototype"  # the plainest attack that knows only the class
BLIND = "text/blind"  # who sees no states at all and lets the language model guess
FLOORS = (FLOOR, "label", BLIND)  # all who see nothing of an input itself; what others recover beyond them is leaked
GALLERY = "gallery"  # who has the true input among some of its class: it tells which one, and reconstructs nothing
BESIDE = (*FLOORS, GALLERY)  # never part of the worst case over reconstructions


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


def mean_std_worst(figures: dict[str, float]) -> str:
    """A summary as the papers print it.

    Example:
        >>> mean_std_worst({"mean": 0.14, "std": 0.11, "worst": 0.48})
        '0.14 ± 0.11 (0.48)'
    """
    return f"{figures['mean']:.2f} ± {figures['std']:.2f} ({figures['worst']:.2f})"


def worst_case(attacks: dict[str, Any]) -> dict[str, Any]:
    """For every input and metric the attack that recovered it best, summarised: the headline of a run.

    Example:
        >>> both = {"a": [0.1, 0.9], "b": [0.5, 0.5]}
        >>> found = worst_case({key: {"inputs": [3, 8], "scores": {"ssim": each}} for key, each in both.items()})
        >>> found["ssim"]["mean"], found["samples"]
        (0.7, 2)
    """
    inputs, scores = worst_scores(attacks)
    if not inputs:
        return {}
    summaries = {name: summary(name, torch.tensor(each, dtype=torch.float64)) for name, each in scores.items()}
    names = sorted(key for key in attacks if key not in BESIDE)
    return {"attacks": names, "samples": len(inputs), "inputs": inputs, **summaries}


def worst_scores(attacks: dict[str, Any]) -> tuple[list[int], dict[str, list[float]]]:
    """The inputs that all attacks saw, and by metric for each of them the score of the attack that recovered it best.

    What knows the label alone is no attack of its own, and a metric that one of the attacks lacks has no worst case.
    """
    real = {key: attack for key, attack in attacks.items() if key not in BESIDE}
    inputs = common_inputs(real)
    rows = {key: [attack["inputs"].index(index) for index in inputs] for key, attack in real.items()}
    worst = {}
    for name, higher in HIGHER_IS_WORSE.items():
        if inputs and all(name in attack["scores"] for attack in real.values()):
            found = [[attack["scores"][name][row] for row in rows[key]] for key, attack in real.items()]
            worst[name] = [max(each) if higher else min(each) for each in zip(*found, strict=True)]
    return inputs, worst


def common_inputs(attacks: dict[str, Any]) -> list[int]:
    """The test inputs, by index, that all of these attacks were tried on."""
    seen = [set(attack["inputs"]) for attack in attacks.values()]
    return sorted(set.intersection(*seen)) if seen else []


def scored(scores: dict[str, Tensor]) -> dict[str, Any]:
    """Scores as results.json keeps them: summaries, and each sample's own, for the worst case over attacks."""
    each = {name: [round(value, 6) for value in values.tolist()] for name, values in scores.items()}
    return {**{name: summary(name, values) for name, values in scores.items()}, "scores": each}
