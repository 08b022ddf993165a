"""Where to look next: cells halfway between those of the front and their neighbours."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from reports.cells import Cell, Setting
from reports.sweet_spot import Verdict
from reports.tables import short


def refined(
    setting: Setting, verdict: Verdict, count: int, planned: Collection[tuple[float, float]] = ()
) -> list[tuple[float, float]]:
    """Up to `count` new (λ, β) around the front, the best cell's surroundings first.

    Around a cell lie the geometric means with its nearest neighbours along λ and β, and at the grid's edge half the
    last step beyond it. The same results give the same cells, so a refinement that was killed goes on.
    """
    tried = [cell for cell in setting.cells if cell.defence["name"] == "mixcon" and not cell.channel]
    known = {(cell.defence["lambda"], cell.defence["beta"]) for cell in tried} | set(planned)  # failed ones too
    axes = [sorted({pair[axis] for pair in known if pair[axis] > 0}) for axis in (0, 1)]
    found: list[tuple[float, float]] = []
    for cell in centres(verdict, tried):
        at = (cell.defence["lambda"], cell.defence["beta"])
        for axis in (0, 1):
            for value in around(at[axis], axes[axis]):
                pair = (value, at[1]) if axis == 0 else (at[0], value)
                if pair not in known:
                    known.add(pair)
                    found.append(pair)
    return found[:count]


def centres(verdict: Verdict, tried: list[Cell]) -> list[Cell]:
    """The best cell, then the front, then whatever else qualifies, each once."""
    ordered: list[Cell] = []
    for cell in (verdict.cell, *verdict.front, *verdict.qualifying):
        if cell in tried and cell is not None and cell not in ordered:
            ordered.append(cell)
    return ordered


def around(value: float, axis: list[float]) -> list[float]:
    """Halfway, in logarithms, to the neighbours of a value on an axis; rounded so that names stay readable.

    Example:
        >>> around(1.0, [0.1, 1.0, 10.0]), around(10.0, [0.1, 1.0, 10.0]), around(1.0, [1.0])
        ([0.316, 3.16], [3.16, 31.6], [0.316, 3.16])
    """
    if value <= 0:
        return []
    below = [each for each in axis if each < value]
    above = [each for each in axis if each > value]
    down = below[-1] if below else value * (value / above[0]) if above else value / 10
    up = above[0] if above else value * (value / below[-1]) if below else value * 10
    halfway = (math.sqrt(value) * math.sqrt(other) for other in (down, up))
    return [float(f"{each:.3g}") for each in halfway if 0 < each < math.inf]


def named(pairs: Iterable[tuple[float, float]]) -> str:
    """Pairs as the papers write them."""
    return ", ".join(f"({short(lam)}, {short(beta)})" for lam, beta in pairs)
