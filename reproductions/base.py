"""Reproduction: one table or figure of a paper. A new one is one class in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sweetspot.errors import UserError, check_one_of
from sweetspot.options import Declared
from sweetspot.registry import Registry
from sweetspot.reproductions.needs import Need, Shelf
from sweetspot.reproductions.verdict import Cell

# what the papers have besides, and why there is nothing to run
LEFT_OUT = {
    "mixcon/figure-1": "a drawing of the method",
    "gradients/figure-1": "a drawing of the network",
}


@dataclass(frozen=True)
class Asked:
    """What a command line asks for.

    Args:
        quick: whether small sizes are enough.
        seeds: how many; None: as many as the item has.
        dataset: of images one of the paper's, of text the corpus in place of the paper's; None: the paper's.
        model: in place of GPT-2 small; None: GPT-2 small, or of a quick size gpt2-tiny.
    """

    quick: bool = False
    seeds: int | None = None
    dataset: str | None = None
    model: str | None = None

    def seeds_of(self, full: int, quick: int = 1) -> range:
        """The seeds of an item, by its sizes."""
        return range(self.seeds or (quick if self.quick else full))


class Reproduction(Declared):
    """One table or figure.

    `title` is what it shows, `takes` which of --dataset, --model and --seeds it has a use for, `datasets` the paper's,
    `note` what the paper, or our copy of it, does not say and we chose, `quick_note` what a quick size is.
    """

    title: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("seeds",)
    datasets: ClassVar[tuple[str, ...]] = ()
    note: ClassVar[str] = ""
    quick_note: ClassVar[str] = "smaller than the paper's"

    def cells(self, asked: Asked) -> list[Cell]:
        """Its cells, each with what it needs."""
        raise NotImplementedError

    def drawn_besides(self, asked: Asked) -> list[Need]:
        """What its picture shows and no cell needs."""
        return []

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        """Draw the picture in the paper's layout from what is there; whether there is one."""
        return False

    def check(self, asked: Asked) -> None:
        """Refuse what this item has no use for."""
        for flag in ("dataset", "model", "seeds"):
            if getattr(asked, flag) is not None and flag not in self.takes:
                raise UserError(f"{self.name} takes no --{flag}: leave it out")
        if asked.dataset is not None and self.datasets:
            check_one_of("--dataset", asked.dataset, self.datasets)

    def chosen(self, asked: Asked) -> tuple[str, ...]:
        """The paper's datasets that are asked for."""
        return self.datasets if asked.dataset is None else (asked.dataset,)

    def stand_in(self, asked: Asked) -> str:
        """Why figures of what is asked for cannot be called reproduced; empty where they can."""
        return f"quick: {self.quick_note}" if asked.quick else ""

    def needs(self, asked: Asked) -> list[Need]:
        """All that its cells and its picture need, each once, what others build on first."""
        every = [need for cell in self.cells(asked) for needs in cell.needs for need in needs]
        every += self.drawn_besides(asked)
        first = [each for need in every for each in need.first]
        return list({need.key: need for need in (*first, *every)}.values())


REPRODUCTIONS: Registry[Reproduction] = Registry("table or figure", Reproduction)


def item(name: str) -> Reproduction:
    """The table or figure of this id; one that has nothing to run is refused with the reason."""
    if name in LEFT_OUT:
        raise UserError(f"{name} is {LEFT_OUT[name]}: there is nothing to run")
    return REPRODUCTIONS[name]()
