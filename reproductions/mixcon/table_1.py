"""Table 1: accuracy on synthetic data, by the server's depth and width."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import VANILLA, accuracy, mixcon, synthetic, training_accuracy
from sweetspot.reproductions.verdict import Cell, Figure, Within

SMALL, NONE = mixcon(0.1, 0.01), mixcon(0.1, 0.0)
COLUMNS = {  # defence, head, the paper's train and test accuracy in per cent
    "Vanilla": (VANILLA, "default", 91.5, 91.5),
    "MixCon(.1, .01)": (SMALL, "default", 88.9, 88.0),
    "deeper": (SMALL, "deeper", 89.5, 88.5),
    "wider": (SMALL, "wider", 91.5, 90.5),
    "MixCon(.1, 0)": (NONE, "default", 50.0, 50.0),
    "deeper, β = 0": (NONE, "deeper", 50.0, 50.0),
    "wider, β = 0": (NONE, "wider", 50.0, 50.0),
}
SIZE = Within(3.0)  # one and a half standard errors of an accuracy of 90 % on 200 test points


@REPRODUCTIONS("mixcon/table-1")
class Table1(Reproduction):
    title = "accuracy on synthetic data, by server"
    note = "σ, batch size and ε are not in the paper: see configs/synthetic.yaml."
    quick_note = "4 epochs, fewer seeds"

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for column, (defence, head, train, test) in COLUMNS.items():
            needs = [(synthetic(defence, seed, asked.quick, head),) for seed in asked.seeds_of(5, quick=2)]
            order = None if column == "Vanilla" else "Vanilla"
            for row, read, paper in (("train %", training_accuracy, train), ("test %", accuracy, test)):
                cells.append(
                    Cell(row, column, needs, read, Figure(paper), SIZE, (row, order) if order else None, digits=1)
                )
        return cells
