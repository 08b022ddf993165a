"""Figure 5 (Appendix D.1): recovered images from vanilla, UniCon and MixCon side by side."""

from __future__ import annotations

from collections.abc import Sequence

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.mixcon.gallery import Gallery
from sweetspot.reproductions.mixcon.runs import (
    IMAGES,
    LAMBDA,
    PAPER_ATTACK,
    QUICK_NOTE,
    TITLES,
    VANILLA,
    lenet,
    mixcon,
    unicon,
)
from sweetspot.reproductions.needs import TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure, Record


def worse(records: Sequence[Record]) -> Figure | None:
    """The share of images of which less comes back from the second run than from the first; of the same ones only."""
    scores = []
    for record in records:
        attack = record["attacks"][PAPER_ATTACK]
        scores.append(dict(zip(attack["inputs"], attack["scores"]["ssim"], strict=True)))
    both = scores[0].keys() & scores[1].keys()
    return Figure(sum(scores[1][each] < scores[0][each] for each in both) / len(both)) if both else None


@REPRODUCTIONS("mixcon/figure-5")
class Figure5(Gallery):
    title = "LeNet5: images, UniCon beside MixCon"
    takes = ("dataset", "seeds")
    datasets = IMAGES
    note = "The paper shows single images; here its claim is counted over all attacked ones. The runs of Table 4."
    quick_note = QUICK_NOTE

    def runs(self, asked: Asked, dataset: str, seed: int) -> dict[str, TrainedRun]:
        lam = LAMBDA[dataset]
        defences = {"Vanilla": VANILLA, "UniCon": unicon(lam), "MixCon": mixcon(lam, 1e-4)}
        return {name: lenet(dataset, each, seed, asked.quick, (PAPER_ATTACK,)) for name, each in defences.items()}

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for dataset in self.chosen(asked):
            made = [self.runs(asked, dataset, seed) for seed in asked.seeds_of(3)]
            for first, second in (("Vanilla", "MixCon"), ("UniCon", "MixCon")):
                pairs = [(each[first], each[second]) for each in made]
                row = f"{TITLES[dataset]}: {second} hides more than {first}"
                cells.append(Cell(row, "", pairs, worse))
        return cells
