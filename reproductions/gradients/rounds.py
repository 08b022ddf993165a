"""Federated rounds of the paper's setting: two layers, m hidden units, two samples, bias 30, the moments' subspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Figure, Record

SMALL = 0.5  # of a sample's norm, which is 1: the paper says "small" and gives no figure in our copy
WIDTH = 5000
ACTIVATIONS = {"square-cubic": "x² + x³", "tanh": "tanh", "sigmoid": "sigmoid"}


def synthetic_round(activation: str, dim: int, seed: int, source: str = "w", width: int = WIDTH) -> Computed:
    """Two samples e_1 and e_2 with labels 1 and −1 out of one gradient."""
    settings: dict[str, Any] = {"activation": activation, "dim": dim, "width": width, "source": source, "seed": seed}
    return Computed("gradient", {**settings, "subspace": "moment"})


def error(record: Record, stage: str = "tensor") -> float:
    """The root mean square of ‖x̂ − x‖ over the batch, after the tensor stage: the paper's attack alone."""
    return float(record["recovered"][stage]["rms"])


def share(holds: Callable[[Record], bool]) -> Callable[[Sequence[Record]], Figure]:
    """In which share of the rounds something holds."""
    return lambda records: Figure(sum(map(holds, records)) / len(records))


def is_small(record: Record) -> bool:
    """Whether the tensor stage comes near the samples."""
    return error(record) < SMALL


def curve(lines: Sequence[Sequence[Computed]], axis: str, shelf: Shelf) -> list[tuple[float, float]]:
    """The mean error over seeds against a setting, where there is any.

    Args:
        lines: for each seed its rounds, in the order of the axis.
        axis: the setting, `dim` or `width`.
        shelf: where the rounds are.
    """
    points = []
    for rounds in zip(*lines, strict=True):
        errors = [error(record) for record in map(shelf.find, rounds) if record is not None]
        points += [(float(rounds[0].settings[axis]), sum(errors) / len(errors))] if errors else []
    return points
