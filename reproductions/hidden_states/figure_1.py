"""Figure 1: loss curves of plain Adam, with an early spike, and of the stabilised descent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, claim, inversion
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell, Record

PLAIN: dict[str, Any] = {"anneal": False, "clip": None}  # neither annealed nor clipped


def both(asked: Asked) -> dict[str, Computed]:
    """The two descents that Figures 1 and 2 compare."""
    return {"plain": inversion(asked, "c4", 100, **PLAIN), "stabilised": inversion(asked, "c4", 100)}


def spikes(record: Record) -> list[float]:
    """How high the median loss of each position rises above its start."""
    curves = [each for each in record["observed"]["curves"]["loss"] if each]
    return [float(max(curve) / max(curve[0], 1e-30)) for curve in curves]


def spikes_more(records: Sequence[Record]) -> float:
    """The share of positions at which plain Adam rises higher."""
    plain, stabilised = map(spikes, records)
    higher = [one > other for one, other in zip(plain, stabilised, strict=False)]
    return sum(higher) / len(higher)


@REPRODUCTIONS("hidden-states/figure-1")
class Figure1(HiddenStates):
    title = "loss curves of plain Adam, and stabilised"
    note = "Text and prompts are not in our copy of the paper: 100 of C4. Medians by position."

    def cells(self, asked: Asked) -> list[Cell]:
        return [claim("plain Adam's loss spikes higher", [*both(asked).values()], spikes_more)]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        found = {name: shelf.find(need) for name, need in both(asked).items()}
        there = {name: record["observed"] for name, record in found.items() if record is not None}
        if not there:
            return False
        from sweetspot.reproductions.pictures import loss_panels

        loss_panels(there, path)
        return True
