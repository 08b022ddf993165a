"""Figure 2: annealing and clipping improve EM and similarity."""

from __future__ import annotations

from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, ablation, claim, gains, percent, similarity
from sweetspot.reproductions.hidden_states.figure_1 import both
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.verdict import Cell


@REPRODUCTIONS("hidden-states/figure-2")
class Figure2(HiddenStates):
    title = "annealing and clipping: EM and similarity"
    note = "The figures were lost in our copy of the paper: its claim alone. The attacks of Figure 1."

    def cells(self, asked: Asked) -> list[Cell]:
        needs = [*both(asked).values()]
        return [
            claim("annealing and clipping raise EM", needs, gains(percent)),
            claim("annealing and clipping raise similarity", needs, gains(similarity)),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return ablation("descent", both(asked), shelf, path)
