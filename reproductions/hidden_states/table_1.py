"""Table 1: the operating points: settings, not results."""

from __future__ import annotations

from collections.abc import Sequence

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.needs import Computed
from sweetspot.reproductions.verdict import Cell, Figure, Record, Within

ROWS = {"fast": (600, 100), "baseline": (1000, 2000), "high-accuracy": (2000, 10_000)}


@REPRODUCTIONS("hidden-states/table-1")
class Table1(Reproduction):
    title = "operating points: steps and candidates"
    takes = ()
    note = "Nothing is measured: what --operating-point means here beside what it means in the paper."
    quick_note = "the same"

    def cells(self, asked: Asked) -> list[Cell]:
        needs = [(Computed("operating-points", {}),)]

        def cell(row: str, column: str, paper: int) -> Cell:
            def read(records: Sequence[Record]) -> Figure:
                return Figure(records[0][row][column])

            return Cell(row, column, needs, read, Figure(paper), Within(0), digits=0)

        return [
            cell(row, name, value)
            for row, paper in ROWS.items()
            for name, value in zip(("steps", "candidates"), paper, strict=True)
        ]

    def stand_in(self, asked: Asked) -> str:
        return ""
