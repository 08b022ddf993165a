"""Figure 4: what the white box recovers, setting by setting, with the accuracy of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.mixcon.gallery import Gallery
from sweetspot.reproductions.mixcon.runs import (
    ACCURACY,
    IMAGES,
    PAPER_ATTACK,
    QUICK_NOTE,
    TITLES,
    VANILLA,
    accuracy,
    lenet,
    mixcon,
)
from sweetspot.reproductions.needs import TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure, Record

COLUMNS = {  # defence, the paper's accuracy on MNIST in per cent
    "Vanilla": (VANILLA, 99.15),
    "MixCon(1, 1e-2)": (mixcon(1.0, 1e-2), 99.00),
    "MixCon(1, 1e-5)": (mixcon(1.0, 1e-5), 98.94),
    "MixCon(1, 1e-7)": (mixcon(1.0, 1e-7), 97.97),
    "MixCon(.1, 1e-2)": (mixcon(0.1, 1e-2), 99.04),
    "MixCon(10, 1e-2)": (mixcon(10.0, 1e-2), 98.33),
    "MixCon(100, 1e-2)": (mixcon(100.0, 1e-2), 98.04),
}
SMALLER_BETA = ("MixCon(1, 1e-2)", "MixCon(1, 1e-5)", "MixCon(1, 1e-7)")
LARGER_LAMBDA = ("MixCon(.1, 1e-2)", "MixCon(1, 1e-2)", "MixCon(10, 1e-2)", "MixCon(100, 1e-2)")


def falls(records: Sequence[Record]) -> Figure:
    """The share of steps, from each run to the next, in which less is recovered."""
    means = [record["attacks"][PAPER_ATTACK]["ssim"]["mean"] for record in records]
    steps = list(itertools.pairwise(means))
    return Figure(sum(after < before for before, after in steps) / len(steps))


@REPRODUCTIONS("mixcon/figure-4")
class Figure4(Gallery):
    title = "LeNet5: recovered images along λ and β"
    takes = ("dataset", "seeds")
    datasets = IMAGES
    note = (
        "Accuracies on Fashion-MNIST and SVHN are not told apart in our copy of the paper: only their claims are here."
    )
    quick_note = QUICK_NOTE

    def runs(self, asked: Asked, dataset: str, seed: int) -> dict[str, TrainedRun]:
        attacks = (PAPER_ATTACK,)
        return {name: lenet(dataset, each, seed, asked.quick, attacks) for name, (each, _) in COLUMNS.items()}

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for dataset in self.chosen(asked):
            made = [self.runs(asked, dataset, seed) for seed in asked.seeds_of(1)]
            for name, (_, percent) in COLUMNS.items() if dataset == "mnist" else ():
                order = None if name == "Vanilla" else ("MNIST acc %", "Vanilla")
                needs = [[each[name]] for each in made]
                cells.append(Cell("MNIST acc %", name, needs, accuracy, Figure(percent), ACCURACY, order))
            for change, names in (("smaller β", SMALLER_BETA), ("larger λ", LARGER_LAMBDA)):
                line = [[each[name] for name in names] for each in made]
                cells.append(Cell(f"{TITLES[dataset]}: {change}, less is recovered", "", line, falls))
        return cells
