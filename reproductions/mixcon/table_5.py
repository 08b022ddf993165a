"""Table 5 (Appendix D.2): what the GAN decoder recovers from VGG16 on CIFAR-10."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import SIMILARITY, VANILLA, mixcon, score, vgg
from sweetspot.reproductions.verdict import Cell, Figure

ROWS = {  # defence, SSIM, PSIM
    "Vanilla": (VANILLA, Figure(0.53, 0.15, 0.9418), Figure(0.92, 0.02, 0.98)),
    "MixCon(1, 1e-8)": (mixcon(1.0, 1e-8), Figure(0.33, 0.15, 0.66), Figure(0.85, 0.03, 0.94)),
}


@REPRODUCTIONS("mixcon/table-5")
class Table5(Reproduction):
    title = "VGG16, CIFAR-10: recovery, GAN decoder"
    note = "VGG16 with batch normalisation: without it MixCon stays on its first plateau. One seed: 300 epochs."
    quick_note = "1 epoch on 1,000 images, 1 epoch of the GAN, 40 attacked"

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for row, (defence, ssim, psim) in ROWS.items():
            needs = [(vgg(defence, seed, asked.quick),) for seed in asked.seeds_of(1)]
            for column, paper in (("SSIM", ssim), ("PSIM", psim)):
                against = None if row == "Vanilla" else ("Vanilla", column)
                read = score(column.lower(), "decoder/paper")
                cells.append(Cell(row, column, needs, read, paper, SIMILARITY, against))
        return cells
