"""Figure 3: EM against the step budget."""

from __future__ import annotations

from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, ablation, claim, gains, inversion, percent
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell

BUDGETS = (100, 300, 600, 1000, 2000)


def by_steps(asked: Asked) -> dict[int, Computed]:
    """The attack with each budget."""
    needs = [inversion(asked, "c4", 100, steps=steps) for steps in BUDGETS]
    return {need.settings["steps"]: need for need in needs}


@REPRODUCTIONS("hidden-states/figure-3")
class Figure3(HiddenStates):
    title = "EM against the step budget"
    note = "EM 14 % at the smallest budget, 84 % at the largest; which they are was lost in our copy of the paper."

    def cells(self, asked: Asked) -> list[Cell]:
        return [claim("EM grows with the step budget", [*by_steps(asked).values()], gains(percent))]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return ablation("steps", by_steps(asked), shelf, path)
