"""Leak beyond the label: what comes back of an input, measured from what its class alone gives (0) to all of it (1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sweetspot.metrics.summary import FLOORS

Scores = Mapping[str, Sequence[float] | Tensor]

LEAKING = ("ssim", "psim", "mcs", "similarity", "em", "token_accuracy", "reid", "mse")  # others have no floor and top
LEAST_ROOM = 1e-3  # where the label gives more than all but this, there is nothing left to leak


def leaks(name: str, scores: Tensor, floor: Tensor) -> Tensor:
    """The leak of each input, (B,): (s − f)/(1 − mean f), for mse (f − m)/mean f; negative where the label does better.

    The floor's mean stands below the fraction, so that the mean leak is the leak of the mean score, and an input whose
    class says nearly all about it does not outweigh the others.

    Args:
        name: of the metric.
        scores: of an attack (B,).
        floor: what label-only attackers reach on the same inputs (B,).

    Example:
        >>> leaks("ssim", torch.tensor([0.5, 0.75, 1.0]), torch.tensor([0.5, 0.5, 0.5]))
        tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
        >>> leaks("mse", torch.tensor([0.25, 0.0]), torch.tensor([0.125, 0.125]))
        tensor([-1.,  1.], dtype=torch.float64)
    """
    if name not in LEAKING:
        raise ValueError(f"there is no leak by {name}, only by {', '.join(LEAKING)}")
    scores, floor = scores.double(), floor.double()
    if scores.shape != floor.shape:
        raise ValueError(f"scores and floor must be of the same inputs; got {len(scores)} and {len(floor)}")
    if name == "mse":
        beyond, room, least = floor - scores, floor.mean(), 0.0
    else:
        beyond, room, least = scores - floor, 1 - floor.mean(), LEAST_ROOM
    return beyond / room if room > least else torch.zeros_like(beyond)


def floor_of(label_only: Sequence[Scores], count: int) -> dict[str, Tensor]:
    """By metric the best that `count` label-only attackers reach on each input, (B,).

    The best of several attacks on each input is better than any of them, even where nothing but the label is known:
    the floor must be the best of as many.

    Args:
        label_only: the scores of each attacker that knows the class alone, on the same inputs in the same order.
        count: how many attacks the worst case is over; the first so many are taken.

    Example:
        >>> both = [{"ssim": [0.25, 0.5], "rank": [1, 2]}, {"ssim": [0.75, 0.0]}]
        >>> floor_of(both, 2), floor_of(both, 1)["ssim"].tolist()
        ({'ssim': tensor([0.7500, 0.5000], dtype=torch.float64)}, [0.25, 0.5])
    """
    if not 1 <= count <= len(label_only):
        raise ValueError(f"a floor of {count} needs as many label-only attackers; got {len(label_only)}")
    chosen = label_only[:count]
    best = {}
    for name in LEAKING:
        if all(name in each for each in chosen):
            scores = torch.stack([torch.as_tensor(each[name], dtype=torch.float64) for each in chosen])
            best[name] = scores.amin(dim=0) if name == "mse" else scores.amax(dim=0)
    return best


def label_only(attacks: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The attackers among some records who know the label alone, each with `inputs` and `scores`, the best first."""
    found = [attacks[key] for key in FLOORS if attacks.get(key, {}).get("scores")]
    main, sign = ("ssim", 1) if all("ssim" in each["scores"] for each in found) else ("mse", -1)
    found.sort(key=lambda each: sign * sum(each["scores"].get(main) or [0.0]) / len(each["inputs"]), reverse=True)
    label = attacks.get("label", {})
    return [*found, *({"inputs": label["inputs"], "scores": each} for each in label.get("others", []))]


def floor_on(inputs: Sequence[int], floors: Sequence[Mapping[str, Any]], count: int) -> dict[str, Tensor]:
    """The best of so many label-only attackers on each of some inputs; nothing where one of them did not see them."""
    rows = []
    for each in floors[:count]:
        place = {index: row for row, index in enumerate(each["inputs"])}
        if not all(index in place for index in inputs):
            return {}
        rows.append({name: [s[place[index]] for index in inputs] for name, s in each["scores"].items()})
    return floor_of(rows, min(count, len(rows))) if rows and inputs else {}


def leak_record(scores: Scores, floor: Scores) -> dict[str, Any]:
    """Leaks as results.json keeps them, by metric: a summary over inputs, and each input's own.

    `worst` is the input of which most came back.

    Args:
        scores: of an attack, or of the worst case over attacks, by metric.
        floor: of label-only attackers, by metric; metrics without a floor have no leak.

    Example:
        >>> found = leak_record({"ssim": [0.5, 1.0], "psnr": [9.0, 9.5]}, {"ssim": [0.5, 0.5]})
        >>> found["leak"], found["leaks"]
        ({'ssim': {'mean': 0.5, 'std': 0.5, 'worst': 1.0}}, {'ssim': [0.0, 1.0]})
    """
    found = {
        name: leaks(name, torch.as_tensor(scores[name]), torch.as_tensor(floor[name]))
        for name in LEAKING
        if name in scores and name in floor
    }
    summaries = {
        name: {"mean": each.mean().item(), "std": each.std(unbiased=False).item(), "worst": each.max().item()}
        for name, each in found.items()
    }
    return {
        "leak": summaries,
        "leaks": {name: [round(one, 6) for one in each.tolist()] for name, each in found.items()},
    }
