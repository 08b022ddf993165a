"""Figure 2: the planar cut layer of the synthetic experiment, before and after training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import VANILLA, distance, mixcon, synthetic
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.verdict import Cell, Figure, Record

PANELS = {"Vanilla": VANILLA, "MixCon β = 0.01": mixcon(0.1, 0.01), "MixCon β = 0": mixcon(0.1, 0.0)}


def is_smaller(records: Sequence[Record]) -> Figure:
    """1 where the second run's representations lie closer together than the first one's."""
    return Figure(float(distance(records[1]) < distance(records[0])))


def is_collapsed(records: Sequence[Record]) -> Figure:
    """1 where all representations of a run are one point as far as its classifier can tell."""
    return Figure(float(records[0]["utility"]["accuracy"] <= 0.55))


@REPRODUCTIONS("mixcon/figure-2")
class Figure2(Reproduction):
    title = "synthetic data at the cut, before and after"
    note = "Claims are counted over seeds; distances are of unit-norm representations. Drawn is seed 0."
    quick_note = "4 epochs, fewer seeds"

    def cells(self, asked: Asked) -> list[Cell]:
        seeds = asked.seeds_of(5, quick=2)
        runs = {name: [synthetic(each, seed, asked.quick) for seed in seeds] for name, each in PANELS.items()}
        vanilla, some, none = runs.values()
        return [
            Cell("β = 0.01 squeezes representations", "", list(zip(vanilla, some, strict=True)), is_smaller),
            Cell("β = 0 squeezes them further", "", list(zip(some, none, strict=True)), is_smaller),
            Cell("β = 0 maps all to one point", "", [(run,) for run in none], is_collapsed),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        folders = {name: shelf.folder(synthetic(each, 0, asked.quick)) for name, each in PANELS.items()}
        pictures = {name: folder / "representations.png" for name, folder in folders.items() if folder is not None}
        pictures = {name: file for name, file in pictures.items() if file.is_file()}
        if not pictures:
            return False
        from sweetspot.reproductions.pictures import stacked

        stacked(pictures, path)
        return True
