"""Table 4 (Appendix D.1): the same with UniCon, which pulls together within a class."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon import runs
from sweetspot.reproductions.mixcon.runs import LAMBDA, PAPER_ATTACK, TITLES, lenet, mixcon, recovery_cells, unicon
from sweetspot.reproductions.mixcon.table_3 import MIXCONS
from sweetspot.reproductions.verdict import Cell, Figure

UNICONS = {
    "mnist": (99.2, Figure(0.31, 0.11, 0.59), Figure(0.41, 0.07, 0.60)),
    "fashion-mnist": (89.6, Figure(0.19, 0.09, 0.53), Figure(0.45, 0.07, 0.64)),
    "svhn": (88.3, Figure(0.67, 0.11, 0.91), Figure(0.62, 0.05, 0.75)),
}


@REPRODUCTIONS("mixcon/table-4")
class Table4(Reproduction):
    title = "LeNet5: recovery, UniCon beside MixCon"
    takes = ("dataset",)
    datasets = runs.IMAGES
    note = "Appendix D.1; λ as for MixCon."
    quick_note = runs.QUICK_NOTE

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for dataset in self.chosen(asked):
            lam = LAMBDA[dataset]
            other = f"UniCon({lam:g})"
            for column, defence, paper, against in (
                (other, unicon(lam), UNICONS[dataset], ""),
                (f"MixCon({lam:g}, 1e-4)", mixcon(lam, 1e-4), MIXCONS[dataset], other),
            ):
                made = [lenet(dataset, defence, seed, asked.quick, (PAPER_ATTACK,)) for seed in asked.seeds_of(3)]
                cells += recovery_cells(TITLES[dataset], column, made, paper, against)
        return cells
