"""Table 2: what the white box recovers of synthetic data."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import PAPER_ATTACK, VANILLA, mixcon, score, synthetic
from sweetspot.reproductions.verdict import Cell, Figure, Within

COLUMNS = {  # defence, the paper's MSE and mean cosine similarity
    "Vanilla": (VANILLA, 1.92, 0.169),
    "MixCon(.1, .01)": (mixcon(0.1, 0.01), 2.08, 0.118),
    "MixCon(.1, 0)": (mixcon(0.1, 0.0), 2.35, 0.161),
}
SIZES = {"MSE": Within(0.15), "MCS": Within(0.03)}  # less than the paper's smallest difference that it speaks of


@REPRODUCTIONS("mixcon/table-2")
class Table2(Reproduction):
    title = "recovery of synthetic data, white box"
    note = "All 200 test points, ℓ1 loss, SGD, 500 steps, as in the paper."
    quick_note = "4 epochs, fewer seeds"

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for column, (defence, mse, mcs) in COLUMNS.items():
            seeds = asked.seeds_of(5, quick=2)
            needs = [(synthetic(defence, seed, asked.quick, attacks=(PAPER_ATTACK,)),) for seed in seeds]
            for row, paper in (("MSE", mse), ("MCS", mcs)):
                order = None if column == "Vanilla" else (row, "Vanilla")
                cells.append(Cell(row, column, needs, score(row.lower()), Figure(paper), SIZES[row], order, digits=3))
        return cells
