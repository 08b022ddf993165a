"""Figure 4: by which metric the true token is nearest to where the descent ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, ablation, claim, inversion
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.reproductions.verdict import Cell, Record

METRICS = ("l2", "cosine", "dot")
CANDIDATES = 20  # few, so that the order of the candidates decides


def by_metric(asked: Asked) -> dict[str, Computed]:
    """The attack with each metric, on 2,000 positions."""
    return {name: inversion(asked, "c4", 200, candidates=CANDIDATES, metric=name) for name in METRICS}


def first_finds_more(records: Sequence[Record]) -> float:
    """Whether the first attack finds at least as many tokens as the second."""
    return float(records[0]["token_accuracy"] >= records[1]["token_accuracy"])


@REPRODUCTIONS("hidden-states/figure-4")
class Figure4(HiddenStates):
    title = "the candidates' metric: ℓ2, cosine, dot"
    note = f"The paper draws the true token's rank; here its share among the first {CANDIDATES} candidates is compared."

    def cells(self, asked: Asked) -> list[Cell]:
        needs = by_metric(asked)
        others = [name for name in METRICS if name != "l2"]
        row = "ℓ2 finds no fewer than {}"
        return [claim(row.format(name), [needs["l2"], needs[name]], first_finds_more) for name in others]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return ablation("metric", by_metric(asked), shelf, path)
