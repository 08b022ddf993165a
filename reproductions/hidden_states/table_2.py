"""Table 2: EM and similarity of three operating points on C4 and Wikipedia."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, accuracy_cells, inversion
from sweetspot.reproductions.verdict import Cell

# operating point, text, prompts, EM in per cent, similarity, and the row that its order is to
ROWS = {
    "Fast, C4": ("fast", "c4", 100, 35.0, 0.800, None),
    "Fast, Wikipedia": ("fast", "wikipedia", 100, 10.0, 0.711, "Fast, C4"),
    "Baseline, C4": ("baseline", "c4", 450, 66.9, 0.918, "Fast, C4"),
    "High-accuracy, C4": ("high-accuracy", "c4", 200, 97.5, 0.994, "Baseline, C4"),
}


def rows_of(asked: Asked) -> list[str]:
    """The rows that are asked for: of one text in place of the paper's two, one of each operating point."""
    return [row for row in ROWS if not (row.endswith("Wikipedia") and (asked.quick or asked.dataset))]


@REPRODUCTIONS("hidden-states/table-2")
class Table2(HiddenStates):
    title = "text out of states: EM and similarity"
    note = "Step size, clip norm and threshold were lost in our copy of the paper: ours are used. Seed 42."

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for row in rows_of(asked):
            point, corpus, prompts, em, alike, against = ROWS[row]
            cells += accuracy_cells(row, inversion(asked, corpus, prompts, point=point), em, alike, against)
        return cells
