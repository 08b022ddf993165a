"""Table 3: what the white box recovers from LeNet5 without and with MixCon."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon import runs
from sweetspot.reproductions.mixcon.runs import LAMBDA, PAPER_ATTACK, TITLES, VANILLA, lenet, mixcon, recovery_cells
from sweetspot.reproductions.verdict import Cell, Figure

# accuracy in per cent, SSIM and PSIM with their spread over 100 images and the best-recovered one
VANILLAS = {
    "mnist": (99.1, Figure(0.64, 0.11, 0.83), Figure(0.78, 0.05, 0.88)),
    "fashion-mnist": (89.8, Figure(0.43, 0.17, 0.78), Figure(0.71, 0.13, 0.92)),
    "svhn": (88.4, Figure(0.76, 0.19, 0.92), Figure(0.69, 0.07, 0.81)),
}
MIXCONS = {
    "mnist": (98.6, Figure(0.14, 0.11, 0.48), Figure(0.44, 0.07, 0.69)),
    "fashion-mnist": (88.9, Figure(0.17, 0.09, 0.52), Figure(0.42, 0.08, 0.66)),
    "svhn": (88.2, Figure(0.61, 0.15, 0.84), Figure(0.59, 0.07, 0.72)),
}


@REPRODUCTIONS("mixcon/table-3")
class Table3(Reproduction):
    title = "LeNet5: recovery, vanilla beside MixCon"
    takes = ("dataset",)
    datasets = runs.IMAGES
    note = "The paper's recipe alone: an attacker who tunes, or has data, recovers far more (see evaluate.py)."
    quick_note = runs.QUICK_NOTE

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for dataset in self.chosen(asked):
            for column, defence, paper, against in (
                ("Vanilla", VANILLA, VANILLAS[dataset], ""),
                (f"MixCon({LAMBDA[dataset]:g}, 1e-4)", mixcon(LAMBDA[dataset], 1e-4), MIXCONS[dataset], "Vanilla"),
            ):
                made = [lenet(dataset, defence, seed, asked.quick, (PAPER_ATTACK,)) for seed in asked.seeds_of(3)]
                cells += recovery_cells(TITLES[dataset], column, made, paper, against)
        return cells
