"""Runs that were never made, for tests of what is said about runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sweetspot.metrics.summary import summary, worst_case
from sweetspot.reports.cells import Setting, settings_of
from sweetspot.reports.gathering import FoundRun

Figures = Mapping[tuple[float, float], tuple[float, float] | tuple[float, None]]


def found_run(
    lam: float,
    beta: float,
    accuracy: float,
    ssim: float | None,
    seed: int = 0,
    attacks: Sequence[str] = ("whitebox/adaptive",),
    inputs: int = 2,
    odd: float | None = None,
    floor: float | None = None,
) -> FoundRun:
    """A run on images with one (λ, β), and the same recovery by each attack.

    Args:
        ssim: of every input.
        odd: of every second input, where it is another.
        inputs: how many were attacked.
        floor: what the prototype reaches on every input; at 0 the leak is the SSIM itself. None: it was not run.
    """
    name = "none" if lam == 0 else "mixcon"
    records: dict[str, Any] = {}
    floors = ["prototype"] if floor is not None else []
    for key in [*attacks, *floors] if ssim is not None else ():
        pair = [ssim, ssim if odd is None else odd] if key != "prototype" or floor is None else [floor, floor]
        scores = torch.tensor(pair * (inputs // 2), dtype=torch.float64)
        about = {"inputs": [*range(inputs)], "samples": inputs, "settings": {"budget": "fast"}}
        about |= {"seconds": 1.0, "stopped": False}
        records[key] = {"ssim": summary("ssim", scores), "scores": {"ssim": scores.tolist()}, **about}
    results: dict[str, Any] = {
        "name": f"digits-lenet-{name}-l{lam:g}-b{beta:g}-s{seed}",
        "data": {"name": "digits", "source": "made up", "train": 100, "test": 20, "shape": [1, 28, 28]},
        "model": {"name": "lenet", "cut": "conv2", "head": "default"},
        "defence": {"name": name, "lambda": lam, "beta": beta},
        "utility": {"accuracy": accuracy},
        "separability": {"mean": 1.0},
        "attacks": records,
        "worst_case": worst_case(records),
        "config": {"seed": seed, "epochs": 2, "batch_size": 16, "lr": 0.01, "trainer": {}},
        "environment": {"versions": {}, "device": "cpu", "seconds": 1.0},
    }
    return FoundRun(Path(results["name"]), results)


def setting(figures: Figures, floor: float | None = None) -> Setting:
    """A grid of runs from their (accuracy, SSIM) by (λ, β); λ = 0 is vanilla."""
    (only,) = settings_of(
        [found_run(lam, beta, pair[0], pair[1], floor=floor) for (lam, beta), pair in figures.items()]
    )
    return only
