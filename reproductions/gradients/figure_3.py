"""Figure 3 (Appendix D): two digits out of one gradient, for several widths, with a same and with different labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.gradients.rounds import error, is_small, share
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import AtLeast, Cell, Figure, Record

SIZE = AtLeast(of_size=True)
WIDTHS, QUICK_WIDTHS = (1000, 5000, 20_000), (500, 2000)
LABELS = {"a same label": True, "different labels": False}


def falls(records: Sequence[Record]) -> Figure:
    """The share of steps to the next width in which the error becomes smaller."""
    steps = list(itertools.pairwise(map(error, records)))
    return Figure(sum(after < before for before, after in steps) / len(steps))


@REPRODUCTIONS("gradients/figure-3")
class Figure3(Reproduction):
    title = "two digits out of one gradient, by width"
    note = "The widths are not in our copy of the paper; small is an error below half a sample's norm."
    quick_note = "mnist-5k, m = 500 and 2,000, one pair"

    def line(self, asked: Asked, is_same: bool, seed: int) -> list[Computed]:
        """The rounds of a row of pictures."""
        data = {"dataset": "mnist-5k" if asked.quick else "mnist", "same_label": is_same, "seed": seed}
        common = {"activation": "square-cubic", "subspace": "moment", **data}
        return [Computed("gradient", {**common, "width": m}) for m in (QUICK_WIDTHS if asked.quick else WIDTHS)]

    def cells(self, asked: Asked) -> list[Cell]:
        cells = []
        for labels, is_same in LABELS.items():
            lines = [self.line(asked, is_same, seed) for seed in asked.seeds_of(3)]
            cells.append(Cell(f"{labels}: wider, smaller error", "", lines, falls))
            widest = [line[-1:] for line in lines]
            cells.append(Cell(f"{labels}: the widest's error is small", "", widest, share(is_small), rule=SIZE))
        return cells

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        rows = {}
        for labels, is_same in LABELS.items():
            found = {need.settings["width"]: shelf.find(need) for need in self.line(asked, is_same, 0)}
            rows[labels] = {width: record for width, record in found.items() if record is not None}
        if not any(rows.values()):
            return False
        from sweetspot.reproductions.pictures import digits

        digits({labels: found for labels, found in rows.items() if found}, path)
        return True
