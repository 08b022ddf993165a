"""Figure 7: loss curves by position: difficulty grows along the sequence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, claim, observation
from sweetspot.reproductions.hidden_states.figure_5 import attack_of
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.verdict import Cell, Record


def final_losses(record: Record) -> list[float]:
    """The median loss of each position after the last step."""
    return [curve[-1] for curve in record["observed"].get("curves", {}).get("loss", []) if curve]


def first_is_least(records: Sequence[Record]) -> float | None:
    """The share of later positions that end at a larger loss than the first."""
    first, *later = final_losses(records[0]) or [0.0]
    return sum(loss > first for loss in later) / len(later) if later else None


def rises(records: Sequence[Record]) -> float | None:
    """The share of positions at which the loss in the end is larger than at the one before."""
    steps = list(itertools.pairwise(final_losses(records[0])))
    return sum(after > before for before, after in steps) / len(steps) if steps else None


@REPRODUCTIONS("hidden-states/figure-7")
class Figure7(HiddenStates):
    title = "loss curves by position"
    note = "The attack of Figure 5."

    def cells(self, asked: Asked) -> list[Cell]:
        need = attack_of(asked)
        return [
            claim("the first token converges furthest", [need], first_is_least),
            claim("the median loss rises with position", [need], rises),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return observation("curves", attack_of(asked), shelf, path)
