"""What a run's results say of its attacks, on what is released as it is or behind a channel."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sweetspot.metrics.leak import floor_on, label_only, leaks
from sweetspot.metrics.summary import BESIDE, HIGHER_IS_WORSE, common_inputs

Record = dict[str, Any]
WORST_CASE = "worst case"  # what stands for an attack's name where the strongest on each input is meant
LEAK = " leak"  # after the name of a score
HYBRID = "text/hybrid"  # the one attack on text that is tried behind channels


def attack_records(results: Record, channel: str = "") -> dict[str, Record]:
    """Every attack by its name; behind a channel those that were tried there, each with the inputs that it saw."""
    if not channel:
        found: dict[str, Record] = results["attacks"]
        return found
    return {
        key: {
            "inputs": record.get("inputs", []),
            "stopped": record.get("stopped", False),
            **record["channels"][channel],
        }
        for key, record in results["attacks"].items()
        if channel in record.get("channels", {}) and is_tried_there(results, key)
    }


def channels_of(results: Record) -> list[str]:
    """The channels that a run was attacked behind, in the order in which they stand in its results."""
    records = [record for key, record in results["attacks"].items() if is_tried_there(results, key)]
    return list(dict.fromkeys(channel for record in records for channel in record.get("channels", {})))


def is_tried_there(results: Record, key: str) -> bool:
    """Whether an attack counts behind a channel: of text hybrid alone does."""
    return key == HYBRID if "tokenizer" in results["data"] else key not in BESIDE


def worst_record(results: Record, channel: str = "") -> Record:
    """The worst case over attacks, as results have it, or over those behind a channel; empty where there were none."""
    if not channel:
        found: Record = results["worst_case"]
        return found
    records = attack_records(results, channel)
    if len(records) == 1:
        key, only = next(iter(records.items()))
        return {"attacks": [key], **only}
    names = dict.fromkeys(name for record in records.values() for name in record.get("scores") or {})
    scores = {name: strongest_in(results, records, name) for name in names}
    figures = {name: summarised(name, each) for name, each in scores.items() if each}
    if not records:
        return {}
    inputs = common_inputs(records) if figures else []
    return {"attacks": sorted(records), "samples": len(inputs), "inputs": inputs, "scores": scores, **figures}


def strongest(records: Mapping[str, Record], metric: str) -> list[float]:
    """For each input that all of these attacks saw the score of the one that recovered it best; [] where one has none.

    Example:
        >>> both = {"a": [0.1, 0.9], "b": [0.5, 0.5]}
        >>> strongest({key: {"inputs": [3, 8], "scores": {"ssim": each}} for key, each in both.items()}, "ssim")
        [0.5, 0.9]
    """
    kept = {key: (each.get("scores") or {}).get(metric) or [] for key, each in records.items()}
    if not kept or any(not each or len(each) != len(records[key].get("inputs", [])) for key, each in kept.items()):
        return []
    inputs = common_inputs(dict(records))
    best = max if HIGHER_IS_WORSE.get(metric, True) else min
    found = []
    for key, record in records.items():
        where = {index: row for row, index in enumerate(record["inputs"])}
        found.append([kept[key][where[index]] for index in inputs])
    return [best(each) for each in zip(*found, strict=True)]


def strongest_in(results: Record, records: Mapping[str, Record], metric: str) -> list[float]:
    """The same for some of a run's attacks; leaks are beyond the best, on each input, of as many label-only attackers.

    The best of several leaks against one floor would look like a leak by itself.
    """
    name = metric.removesuffix(LEAK)
    if name == metric or len(records) < 2:
        return strongest(records, metric)
    raw, inputs = strongest(records, name), common_inputs(dict(records))
    floor = floor_on(inputs, label_only(results["attacks"]), len(records)) if raw else {}
    if name not in floor:
        return strongest(records, metric)
    found: list[float] = leaks(name, torch.tensor(raw), floor[name]).tolist()
    return found


def summarised(name: str, scores: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, and the most leaked of some scores.

    Example:
        >>> summarised("mse", [0.25, 0.75])
        {'mean': 0.5, 'std': 0.25, 'worst': 0.25}
    """
    values = np.array(scores, np.float64)
    worst = values.max() if HIGHER_IS_WORSE.get(name, True) else values.min()
    return {"mean": float(values.mean()), "std": float(values.std()), "worst": float(worst)}


def pooled(name: str, records: Sequence[Record]) -> dict[str, float] | None:
    """One metric over seeds as if all inputs were one sample; None where a seed lacks it.

    Example:
        >>> ones = {"ssim": {"mean": 0.2, "std": 0.0, "worst": 0.2}}, {"ssim": {"mean": 0.4, "std": 0.0, "worst": 0.4}}
        >>> {part: round(value, 3) for part, value in pooled("ssim", ones).items()}
        {'mean': 0.3, 'std': 0.1, 'worst': 0.4}
    """
    if not records or not all(isinstance(record.get(name), dict) for record in records):
        return None
    figures = [record[name] for record in records]
    means = [each["mean"] for each in figures]
    spread = statistics.fmean(each["std"] ** 2 for each in figures) + statistics.pvariance(means)
    worst = (max if HIGHER_IS_WORSE.get(name, True) else min)(each["worst"] for each in figures)
    return {"mean": statistics.fmean(means), "std": math.sqrt(spread), "worst": worst}
