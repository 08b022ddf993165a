"""Figure 6 (Appendix D.2): recovered CIFAR-10 images, with the accuracy of either network."""

from __future__ import annotations

from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import ACCURACY, VANILLA, accuracy, mixcon, vgg
from sweetspot.reproductions.mixcon.table_5 import Table5
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.verdict import Cell, Figure

COLUMNS = {"Vanilla": (VANILLA, 92.03), "MixCon(1, 1e-8)": (mixcon(1.0, 1e-8), 91.70)}  # accuracy in per cent


@REPRODUCTIONS("mixcon/figure-6")
class Figure6(Reproduction):
    title = "VGG16, CIFAR-10: images and accuracy"
    note = f"{Table5.note} The runs of Table 5."
    quick_note = Table5.quick_note

    def cells(self, asked: Asked) -> list[Cell]:
        return [
            Cell(
                "acc %", name, [(vgg(defence, seed, asked.quick),) for seed in asked.seeds_of(1)], accuracy,
                Figure(percent), ACCURACY, None if name == "Vanilla" else ("acc %", "Vanilla"),
            )
            for name, (defence, percent) in COLUMNS.items()
        ]  # fmt: skip

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        from sweetspot.reproductions.pictures import gallery

        runs = {name: vgg(defence, 0, asked.quick) for name, (defence, _) in COLUMNS.items()}
        return gallery({"CIFAR-10": runs}, shelf, path, "decoder/paper")
