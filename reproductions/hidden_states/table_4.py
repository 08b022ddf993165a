"""Table 4: single commit beside SIPIT, on the same 100 prompts."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, accuracy_cells, inversion
from sweetspot.reproductions.needs import Computed
from sweetspot.reproductions.verdict import Cell

PROMPTS = 100
ROWS = {  # EM in per cent, similarity, the row that its order is to
    "Baseline": (73.0, 0.929, None),
    "High-accuracy": (96.0, 0.990, "Baseline"),
    "SIPIT": (100.0, 1.000, "Baseline"),
}


def attack_of(asked: Asked, row: str) -> Computed:
    """The attack of a row."""
    if row == "SIPIT":
        return inversion(asked, "c4", PROMPTS, "sipit")
    return inversion(asked, "c4", PROMPTS, point=row.lower())


@REPRODUCTIONS("hidden-states/table-4")
class Table4(HiddenStates):
    title = "beside SIPIT: EM and similarity"
    note = "SIPIT as released, with a cached prefix and all prompts at once: the same decisions. Seed 42."

    def cells(self, asked: Asked) -> list[Cell]:
        return [cell for row in ROWS for cell in accuracy_cells(row, attack_of(asked, row), *ROWS[row])]
