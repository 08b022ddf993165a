"""What was seen while text was recovered, condensed to plain numbers: small enough for a record, enough to draw."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sweetspot.attacks.text.diagnostics import (
    CATEGORIES,
    Tokens,
    auroc,
    calibration,
    category,
    detect,
    detector_quality,
    failures_by_category,
)
from sweetspot.attacks.text.recovery import Recovery


def observed(
    recovery: Recovery,
    truth: Tokens | None = None,
    text_of: Callable[[int], str] | None = None,
    explained: float = 0.0,
) -> dict[str, Any]:
    """All that can be observed of a recovery, ready for JSON; what is not known is not there.

    Args:
        recovery: what an inverter gave back.
        truth: the true tokens.
        text_of: a token as text, with its space.
        explained: the discrete loss that a known channel accounts for, as in `detect`.
    """
    seen: dict[str, Any] = {
        "cumulative_loss": recovery.cumulative_loss,
        "seconds_per_token": recovery.seconds_per_token,
        "detector": detector(recovery, truth, explained),
    }
    if truth is not None and recovery.probability is not None:
        seen["reliability"], doubts = reliability(recovery, truth)
        seen["detector"] |= doubts
    if truth is not None:
        seen["right"] = [list(ours) == list(true) for ours, true in zip(recovery.tokens, truth, strict=True)]
    if recovery.curves is not None and any(len(each) for prompt in recovery.curves for each in prompt):
        seen["curves"] = loss_curves(recovery.curves)
    if recovery.ranks is not None and truth is not None and any(len(each) for row in recovery.ranks for each in row):
        seen["ranks"] = rank_trajectories(recovery.ranks, recovery.tokens, truth)
    if truth is not None and text_of is not None:
        seen["failures"] = failures(recovery.tokens, truth, text_of)
    plain_data: dict[str, Any] = for_json(seen)
    return plain_data


def detector(recovery: Recovery, truth: Tokens | None, explained: float) -> dict[str, Any]:
    """What the failure detector says of each prompt and, with the truth, how good that is."""
    detection = detect(recovery, explained=explained)
    found = dataclasses.asdict(detection)
    if recovery.confidence is not None:
        found["confidence"] = recovery.confidence
    return found if truth is None else found | dataclasses.asdict(detector_quality(detection, recovery.tokens, truth))


def reliability(recovery: Recovery, truth: Tokens) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the posterior's probabilities compare with how often they come true, of tokens and of whole prompts.

    Returns:
        The bins of both, and for the detector: their calibration errors, those of faultless probabilities on as many
        cases, and how often a wrong token is more in doubt than a right one.
    """
    assert recovery.probability is not None
    assert recovery.confidence is not None
    pairs = list(zip(recovery.tokens, truth, strict=True))
    of_tokens = [ours == true for tokens, text in pairs for ours, true in zip(tokens, text, strict=False)]
    of_prompts = [list(tokens) == list(text) for tokens, text in pairs]
    said = [each for tokens in recovery.probability for each in tokens]
    bins = {"token": calibration(said, of_tokens), "prompt": calibration(recovery.confidence, of_prompts)}
    doubts = {
        "token_auroc": auroc([1 - each for each in said], [not each for each in of_tokens]),
        "calibration": {name: each.error for name, each in bins.items()},
        "calibration_by_chance": {name: each.chance for name, each in bins.items()},
    }
    return {name: dataclasses.asdict(each) for name, each in bins.items()}, doubts


def loss_curves(curves: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
    """The median continuous loss at some steps, one list a position, empty where no prompt took a step."""
    positions = [
        [prompt[t] for prompt in curves if t < len(prompt) and len(prompt[t])] for t in range(max(map(len, curves)))
    ]
    steps = steps_up_to(max(len(curve) for position in positions for curve in position))
    return {
        "steps": steps,
        "loss": [medians(position, steps) for position in positions],
        "prompts": [len(position) for position in positions],
    }


def rank_trajectories(ranks: Sequence[Sequence[Tensor]], tokens: Tokens, truth: Tokens) -> dict[str, Any]:
    """The median rank of the true token at some steps, for the commits that turned out right and for the wrong ones."""
    kinds: dict[bool, list[Tensor]] = {True: [], False: []}
    for trajectories, ours, true in zip(ranks, tokens, truth, strict=True):
        for trajectory, token, true_token in zip(trajectories, ours, true, strict=False):  # the walk may have been cut
            if len(trajectory):
                kinds[token == true_token].append(trajectory)
    steps = steps_up_to(max(len(each) for kind in kinds.values() for each in kind))
    right, wrong = ({"median": medians(kinds[which], steps), "count": len(kinds[which])} for which in (True, False))
    return {"steps": steps, "right": right, "wrong": wrong}


def failures(tokens: Tokens, truth: Tokens, text_of: Callable[[int], str]) -> dict[str, Any]:
    """How many tokens of each kind were missed and, under `tokens`, of how many that were reached."""
    reached = (true[: len(ours)] for ours, true in zip(tokens, truth, strict=True))
    every = Counter(category(text_of(token)) for prompt in reached for token in prompt)
    return {**failures_by_category(tokens, truth, text_of), "tokens": {each: every[each] for each in CATEGORIES}}


def steps_up_to(last: int) -> list[int]:
    """Steps that lie evenly on a logarithmic axis, the first and the last among them.

    Example:
        >>> steps_up_to(10)
        [1, 2, 3, 5, 8, 10]
    """
    steps, following = [1], 2
    while following < last:
        steps, following = [*steps, following], following + steps[-1]
    return [*steps, last] if last > 1 else steps


def medians(curves: Sequence[Tensor], steps: Sequence[int]) -> list[float]:
    """The median over curves at each of the steps, counted from 1; a curve that has ended keeps its last value."""
    if not curves:
        return []
    at = torch.tensor(steps)
    values = torch.stack([curve.cpu()[at.clamp_max(len(curve)) - 1] for curve in curves])  # (curves, steps)
    found: list[float] = np.median(values.double().numpy(), axis=0).tolist()
    return found


def for_json(value: Any) -> Any:
    """The same data with 4 significant digits, and None for what is no finite number: JSON has neither NaN nor ∞."""
    if isinstance(value, dict):
        return {key: for_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [for_json(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value
