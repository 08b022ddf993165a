"""A figure of recovered images: a row or two for each dataset, a column for each run."""

from __future__ import annotations

from pathlib import Path

from sweetspot.reproductions.base import Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import PAPER_ATTACK, TITLES
from sweetspot.reproductions.needs import Need, Shelf, TrainedRun


class Gallery(Reproduction):
    """A figure that shows what `attack` recovered; a subclass says of which runs."""

    attack = PAPER_ATTACK

    def runs(self, asked: Asked, dataset: str, seed: int) -> dict[str, TrainedRun]:
        """The run of each column."""
        raise NotImplementedError

    def drawn_besides(self, asked: Asked) -> list[Need]:
        return [run for dataset in self.chosen(asked) for run in self.runs(asked, dataset, 0).values()]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        from sweetspot.reproductions.pictures import gallery

        rows = {TITLES[dataset]: self.runs(asked, dataset, 0) for dataset in self.chosen(asked)}
        return gallery(rows, shelf, path, self.attack)
