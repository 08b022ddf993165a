"""Figure 8: which tokens are missed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked
from sweetspot.reproductions.hidden_states.attacks import HiddenStates, claim, observation
from sweetspot.reproductions.hidden_states.figure_6 import attack_of
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.verdict import Cell, Figure, Record, Within

SPACED, ALL = 417, 542  # missed tokens over 450 prompts, space-prefixed and all


def missed(record: Record) -> dict[str, int]:
    """How many tokens of each kind were missed."""
    failures = record["observed"]["failures"]
    return {kind: failures[kind] for kind in failures["tokens"]}


def spaced(records: Sequence[Record]) -> Figure | None:
    """The share of missed tokens that begin with a space, in per cent; None where none was missed."""
    counts = missed(records[0])
    every = sum(counts.values())
    return Figure(100 * counts["space-prefixed"] / every) if every else None


def punctuation_is_second(records: Sequence[Record]) -> float | None:
    """Whether punctuation comes second; None where none was missed."""
    counts = missed(records[0])
    ordered = sorted(counts, key=lambda kind: -counts[kind])
    return float(ordered[1] == "punctuation") if sum(counts.values()) else None


@REPRODUCTIONS("hidden-states/figure-8")
class Figure8(HiddenStates):
    title = "missed tokens by kind"
    note = "The baseline of Table 2."

    def cells(self, asked: Asked) -> list[Cell]:
        need = attack_of(asked)
        paper = Figure(100 * SPACED / ALL)
        return [
            Cell("missed tokens with a space, %", "", [(need,)], spaced, paper, Within(10.0), digits=1),
            claim("punctuation comes second", [need], punctuation_is_second),
        ]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        return observation("failures", attack_of(asked), shelf, path)
