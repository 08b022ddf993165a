"""Figure 5: the median rank of the true token on the way, for right and for wrong commits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, claim, inversion, observation
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell, Record

EARLY = 0.3  # of the budget: step 300 of 1,000


def attack_of(asked: Asked) -> Computed:
    """The baseline on Wikipedia, which the paper takes for curves and trajectories."""
    return inversion(asked, "wikipedia", 100)


def is_early(records: Sequence[Record]) -> float | None:
    """Whether the rank of rightly committed tokens is at most 1 early on; None where none took a step."""
    ranks = records[0]["observed"].get("ranks")
    if ranks is None or not ranks["right"]["count"]:
        return None
    until = EARLY * records[0]["settings"]["steps"]
    return float(any(rank <= 1 for step, rank in zip(ranks["steps"], ranks["right"]["median"], strict=True)
                     if step <= until))  # fmt: skip


def never_near(records: Sequence[Record]) -> float | None:
    """Whether the rank of wrongly committed tokens is never 1 or less; None where none is wrong."""
    ranks = records[0]["observed"].get("ranks")
    if ranks is None or not ranks["wrong"]["count"]:
        return None
    return float(min(ranks["wrong"]["median"]) > 1)


@REPRODUCTIONS("hidden-states/figure-5")
class Figure5(HiddenStates):
    title = "rank of the true token on the way"
    note = "Ranks count from 0. 100 prompts: how many the paper has is not in our copy of it."

    def cells(self, asked: Asked) -> list[Cell]:
        need = attack_of(asked)
        return [
            claim("right commits: rank 1 before 3/10 of the steps", [need], is_early),
            claim("wrong commits: never near rank 1", [need], never_near),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return observation("ranks", attack_of(asked), shelf, path)
