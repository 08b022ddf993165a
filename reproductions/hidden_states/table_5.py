"""Table 5: the time of a token, single commit beside SIPIT."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, time_cell
from sweetspot.reproductions.hidden_states.table_4 import ROWS, attack_of
from sweetspot.reproductions.verdict import Cell

TIMES = {"Baseline": 17.8, "High-accuracy": 30.6, "SIPIT": 0.65}


@REPRODUCTIONS("hidden-states/table-5")
class Table5(HiddenStates):
    title = "beside SIPIT: seconds a token"
    note = "The paper has one prompt at a time on an RTX A6000; here all run at once. The attacks of Table 4."

    def cells(self, asked: Asked) -> list[Cell]:
        return [time_cell(row, attack_of(asked, row), TIMES[row], ROWS[row][2]) for row in ROWS]
