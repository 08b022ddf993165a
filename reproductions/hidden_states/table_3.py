"""Table 3: the time of a token."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, inversion, time_cell
from sweetspot.reproductions.hidden_states.table_2 import ROWS, rows_of
from sweetspot.reproductions.verdict import Cell

TIMES = {"Fast, C4": 9.73, "Fast, Wikipedia": 11.07, "Baseline, C4": 15.40, "High-accuracy, C4": 27.5}


@REPRODUCTIONS("hidden-states/table-3")
class Table3(HiddenStates):
    title = "text out of states: seconds a token"
    note = "The paper has one prompt at a time on an RTX A6000; here all run at once. The attacks of Table 2."

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for row in rows_of(asked):
            point, corpus, prompts, *_, against = ROWS[row]
            cells.append(time_cell(row, inversion(asked, corpus, prompts, point=point), TIMES[row], against))
        return cells
