"""Figure 6 (Appendix D.2): recovered CIFAR-10 images, with the accuracy of either network."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.mixcon.gallery import Gallery
from sweetspot.reproductions.mixcon.runs import ACCURACY, VANILLA, accuracy, mixcon, vgg
from sweetspot.reproductions.mixcon.table_5 import Table5
from sweetspot.reproductions.needs import TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure

COLUMNS = {"Vanilla": (VANILLA, 92.03), "MixCon(1, 1e-8)": (mixcon(1.0, 1e-8), 91.70)}  # accuracy in per cent


@REPRODUCTIONS("mixcon/figure-6")
class Figure6(Gallery):
    datasets = ("cifar10",)
    attack = "decoder/paper"
    title = "VGG16, CIFAR-10: images and accuracy"
    note = f"{Table5.note} The runs of Table 5."
    quick_note = Table5.quick_note

    def runs(self, asked: Asked, dataset: str, seed: int) -> dict[str, TrainedRun]:
        return {name: vgg(defence, seed, asked.quick) for name, (defence, _) in COLUMNS.items()}

    def cells(self, asked: Asked) -> list[Cell]:
        made = [self.runs(asked, "cifar10", seed) for seed in asked.seeds_of(1)]
        cells = []
        for name, (_, percent) in COLUMNS.items():
            order = None if name == "Vanilla" else ("acc %", "Vanilla")
            needs = [[each[name]] for each in made]
            cells.append(Cell("acc %", name, needs, accuracy, Figure(percent), ACCURACY, order))
        return cells
