"""The theorem: the error of the tensor stage falls as m^(−1/2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.gradients.rounds import ACTIVATIONS, curve, error, synthetic_round
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell, Figure, Record, Within

DIM = 50
WIDTHS, QUICK_WIDTHS = (2000, 4000, 8000, 16_000, 32_000), (1000, 4000)
SLOPE = Figure(-0.5)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares slope of log(error) in log(m).

    Example:
        >>> slope([(1, 1.0), (4, 0.5), (16, 0.25)])
        -0.5
    """
    x, y = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def measured_slope(records: Sequence[Record]) -> Figure:
    """Over some widths."""
    return Figure(slope([(record["network"]["width"], error(record)) for record in records]))


@REPRODUCTIONS("gradients/theorem")
class Theorem(Reproduction):
    title = "slope of the error in the width m"
    note = f"d = {DIM}, B = 2, samples e_1 and e_2; the bound's slope is −1/2."
    quick_note = "m = 1,000 and 4,000"

    def line(self, asked: Asked, activation: str, seed: int) -> list[Computed]:
        """The rounds of a line."""
        widths = QUICK_WIDTHS if asked.quick else WIDTHS
        return [synthetic_round(activation, DIM, seed, width=m) for m in widths]

    def cells(self, asked: Asked) -> list[Cell]:
        return [
            Cell(title, "slope", [self.line(asked, name, seed) for seed in asked.seeds_of(3)], measured_slope, SLOPE,
                 Within(0.1))
            for name, title in ACTIVATIONS.items()
        ]  # fmt: skip

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        curves = {}
        for name, title in ACTIVATIONS.items():
            if points := curve([self.line(asked, name, seed) for seed in asked.seeds_of(3)], "width", shelf):
                curves[title] = points
        if not curves:
            return False
        from sweetspot.reports.gradient_figures import width_figure

        width_figure(curves, path, f"d = {DIM}, B = 2")
        return True
