"""Table 3: what the white box recovers from LeNet5 without and with MixCon."""

from __future__ import annotations

from collections.abc import Sequence

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import (
    ACCURACY,
    IMAGES,
    LAMBDA,
    PAPER_ATTACK,
    QUICK_NOTE,
    SIMILARITY,
    TITLES,
    VANILLA,
    Defence,
    accuracy,
    lenet,
    mixcon,
    score,
)
from sweetspot.reproductions.needs import TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure

Paper = tuple[float, Figure, Figure]

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


def recovery_cells(title: str, column: str, runs: Sequence[TrainedRun], paper: Paper, against: str) -> list[Cell]:
    """Accuracy, SSIM and PSIM of one column of Tables 3 and 4; `against` is the column that its order is to."""
    percent, ssim, psim = paper
    needs = [(run,) for run in runs]
    rows = [f"{title} {name}" for name in ("acc %", "SSIM", "PSIM")]
    beside = [(row, against) if against else None for row in rows]
    return [
        Cell(rows[0], column, needs, accuracy, Figure(percent), ACCURACY, beside[0], 1),
        Cell(rows[1], column, needs, score("ssim"), ssim, SIMILARITY, beside[1]),
        Cell(rows[2], column, needs, score("psim"), psim, SIMILARITY, beside[2]),
    ]


class RecoveryTable(Reproduction):
    """A table of accuracy, SSIM and PSIM on three datasets; a subclass says which two columns it has."""

    takes = ("dataset", "seeds")
    datasets = IMAGES
    quick_note = QUICK_NOTE

    def columns(self, dataset: str) -> dict[str, tuple[Defence, Paper]]:
        """The defence and the paper's figures of each column; the second's order is to the first."""
        raise NotImplementedError

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for dataset in self.chosen(asked):
            against = ""
            for column, (defence, paper) in self.columns(dataset).items():
                made = [lenet(dataset, defence, seed, asked.quick, (PAPER_ATTACK,)) for seed in asked.seeds_of(3)]
                cells += recovery_cells(TITLES[dataset], column, made, paper, against)
                against = against or column
        return cells


@REPRODUCTIONS("mixcon/table-3")
class Table3(RecoveryTable):
    title = "LeNet5: recovery, vanilla beside MixCon"
    note = "The paper's recipe alone: an attacker who tunes, or has data, recovers far more (see evaluate.py)."

    def columns(self, dataset: str) -> dict[str, tuple[Defence, Paper]]:
        lam = LAMBDA[dataset]
        mixed = (mixcon(lam, 1e-4), MIXCONS[dataset])
        return {"Vanilla": (VANILLA, VANILLAS[dataset]), f"MixCon({lam:g}, 1e-4)": mixed}
