"""Figure 2: the error against d, from ∇_a and ∇_W (left), and for tanh and sigmoid (right)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.gradients.rounds import ACTIVATIONS, curve, is_small, share, synthetic_round
from sweetspot.reproductions.gradients.rounds import error as rms
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import AtLeast, Cell, Figure, Record

SIZE = AtLeast(of_size=True)
DIMS, QUICK_DIMS = (10, 20, 50, 100, 150, 200), (10, 20, 50)
LINES = {"x² + x³, ∇_a": ("square-cubic", "a"), "x² + x³, ∇_W": ("square-cubic", "w")}
LINES |= {f"{title}, ∇_W": (name, "w") for name, title in ACTIVATIONS.items() if name != "square-cubic"}


def better(records: Sequence[Record]) -> Figure:
    """In which share of the dimensions the second half of the rounds has a smaller error than the first."""
    half = len(records) // 2
    pairs = list(zip(records[:half], records[half:], strict=True))
    return Figure(sum(rms(second) < rms(first) for first, second in pairs) / len(pairs))


@REPRODUCTIONS("gradients/figure-2")
class Figure2(Reproduction):
    title = "error against d, by gradient and σ"
    note = (
        "The dimensions are not in our copy of the paper, nor any figure; small is an error below half a sample's norm."
    )
    quick_note = "d up to 50, one seed"

    def line(self, asked: Asked, name: str, seed: int) -> list[Computed]:
        """The rounds of a line of the figure."""
        activation, source = LINES[name]
        return [synthetic_round(activation, dim, seed, source) for dim in (QUICK_DIMS if asked.quick else DIMS)]

    def cells(self, asked: Asked) -> list[Cell]:
        seeds = asked.seeds_of(3)
        lines = {name: [self.line(asked, name, seed) for seed in seeds] for name in LINES}
        both = [[*a, *w] for a, w in zip(lines["x² + x³, ∇_a"], lines["x² + x³, ∇_W"], strict=True)]
        cells = [Cell("x² + x³: ∇_W is better than ∇_a", "", both, better)]
        return cells + [
            Cell(f"{name}: error is small", "", needs, share(is_small), rule=SIZE) for name, needs in lines.items()
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        panels: dict[str, dict[str, list[tuple[float, float]]]] = {"x² + x³": {}, "∇_W": {}}
        for name in LINES:
            if points := curve([self.line(asked, name, seed) for seed in asked.seeds_of(3)], "dim", shelf):
                panels["x² + x³" if name.startswith("x²") else "∇_W"][name] = points
        if not any(panels.values()):
            return False
        from sweetspot.reproductions.pictures import error_panels

        error_panels({title: lines for title, lines in panels.items() if lines}, path)
        return True
