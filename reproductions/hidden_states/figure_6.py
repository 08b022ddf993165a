"""Figure 6: the cumulative discrete loss tells right from wrong recoveries."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, claim, inversion, observation
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell, Figure, Record, Within

FLOOR = 1e-16  # of a loss: below it is rounding


def attack_of(asked: Asked) -> Computed:
    """The baseline on C4."""
    return inversion(asked, "c4", 450)


def orders(records: Sequence[Record]) -> Figure | None:
    """Orders of magnitude between the medians of wrong and right prompts in the end; None where one kind is missing."""
    seen = records[0]["observed"]
    last = [math.log10(max(losses[-1] or 0.0, FLOOR)) for losses in seen["cumulative_loss"]]
    kinds = [[loss for loss, ok in zip(last, seen["right"], strict=True) if ok is which] for which in (True, False)]
    return Figure(statistics.median(kinds[1]) - statistics.median(kinds[0])) if all(kinds) else None


def told_apart(records: Sequence[Record]) -> float | None:
    """How often a wrong prompt has a larger loss than a right one."""
    found: float | None = records[0]["observed"]["detector"].get("auroc")
    return found


@REPRODUCTIONS("hidden-states/figure-6")
class Figure6(HiddenStates):
    title = "cumulative discrete loss: right from wrong"
    note = 'The paper says "roughly ten orders of magnitude". The baseline of Table 2.'

    def cells(self, asked: Asked) -> list[Cell]:
        need = attack_of(asked)
        return [
            Cell("orders of magnitude apart", "", [(need,)], orders, Figure(10.0), Within(3.0), digits=1),
            claim("wrong prompts have the larger loss", [need], told_apart),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return observation("cumulative_loss", attack_of(asked), shelf, path)
