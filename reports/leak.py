"""Leak beyond the label among the other scores of a run: as it was measured, or by the prototype for older runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sweetspot.metrics.leak import leaks
from sweetspot.metrics.summary import BESIDE, FLOOR, common_inputs
from sweetspot.reports.records import LEAK, Record, strongest, summarised
from sweetspot.runs.record import is_figure

NO_PICTURE = 0.25  # the largest leak of a cell of which is said that no picture, or no identity, comes back
LEAKING = ("ssim", "psim", "mcs", "mse")  # scores of reconstructions that have a floor and a top
COMPUTED = "leak_computed"  # in results: whether the floor is the prototype alone


def leak_of(metric: str) -> str:
    """The name of a score's leak, which stands among the scores.

    Example:
        >>> leak_of("ssim")
        'ssim leak'
    """
    return metric + LEAK


def is_leak(metric: str) -> bool:
    """Whether a score is a leak: 0 is what the label alone gives, 1 everything."""
    return metric.endswith(LEAK)


def with_leaks(results: Record) -> Record:
    """A run's results with leaks as scores among the others, for every attack, its channels, and the worst case."""
    floor = results["attacks"].get(FLOOR, {})
    attacks = {key: with_own(record, {} if key in BESIDE else floor) for key, record in results["attacks"].items()}
    worst = with_worst(results["worst_case"], attacks, floor) if results["worst_case"] else {}
    computed = any(map(is_leak, worst)) and not isinstance(results["worst_case"].get("leak"), dict)
    return {**results, "attacks": attacks, "worst_case": worst, COMPUTED: computed}


def with_own(record: Record, floor: Record) -> Record:
    """An attack with its leaks: on what is released as it is, behind channels, and with several answers averaged."""
    seen = {"inputs": record.get("inputs", [])}
    under = {
        kind: {name: enriched({**seen, **each}, floor) for name, each in record[kind].items()}
        for kind in ("channels", "queries")
        if record.get(kind)
    }
    return {**enriched(record, floor), **under}


def with_worst(worst: Record, attacks: Mapping[str, Record], floor: Record) -> Record:
    """The worst case with its leaks, and with the scores of each input."""
    counted = {key: attacks[key] for key in worst.get("attacks", [])}
    inputs = common_inputs(counted) if all("inputs" in each for each in counted.values()) else []
    names = dict.fromkeys(name for record in counted.values() for name in record.get("scores") or {})
    scores = {name: strongest(counted, name) for name in names if not is_leak(name)}
    if worst.get("inputs", inputs) != inputs:  # it says of which inputs its own leaks are
        return enriched(worst, {})
    return enriched({**worst, "inputs": inputs, "scores": {name: each for name, each in scores.items() if each}}, floor)


def enriched(record: Record, floor: Record) -> Record:
    """A record with its leaks, as it has them or against the floor's scores of the same inputs.

    Args:
        record: of an attack.
        floor: of the attack that knows the class alone; empty: there is none.
    """
    figures, scores = {}, dict(record.get("scores") or {})
    known, each = record.get("leak"), record.get("leaks")
    for name, figure in (known if isinstance(known, dict) else {}).items():
        if is_figure(figure):
            figures[leak_of(name)] = figure
            values = each.get(name) if isinstance(each, dict) else None
            scores |= {leak_of(name): values} if isinstance(values, list) else {}
    for name in LEAKING:
        if leak_of(name) not in figures and floor:
            found = against(record, floor, name)
            if found:
                figures[leak_of(name)] = summarised(leak_of(name), found)
                scores[leak_of(name)] = found
    return {**record, **figures, **({"scores": scores} if scores else {})}


def against(record: Record, floor: Record, name: str) -> list[float]:
    """The leak of each input of a record: (s − f)/(1 − mean f), for MSE (f − m)/mean f; [] where it cannot be told.

    Example:
        >>> floor = {"inputs": [1, 2], "scores": {"ssim": [0.5, 0.5]}}
        >>> against({"inputs": [2, 1], "scores": {"ssim": [0.75, 0.5]}}, floor, "ssim")
        [0.5, 0.0]
    """
    scores, known = (by_input(each, name) for each in (record, floor))
    if not scores or not scores.keys() <= known.keys():
        return []
    found: list[float] = leaks(
        name, torch.tensor(list(scores.values())), torch.tensor([known[index] for index in scores])
    ).tolist()
    return found


def by_input(record: Mapping[str, Any], name: str) -> dict[int, float]:
    """The scores of a record by the input they are of."""
    scores, inputs = (record.get("scores") or {}).get(name) or [], record.get("inputs") or []
    return dict(zip(inputs, scores, strict=True)) if len(inputs) == len(scores) else {}
