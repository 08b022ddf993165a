"""The list of all tables and figures, and one of them, on the terminal."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweetspot.progress import short_duration
from sweetspot.reproductions.base import LEFT_OUT, REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.needs import Shelf, missing_data
from sweetspot.reproductions.verdict import Judged, Status, judged

WIDTH = 80  # columns that everything fits into
STYLES = {
    Status.REPRODUCED: "green",
    Status.DIRECTION: "yellow",
    Status.NOT_REPRODUCED: "red",
    Status.NOT_JUDGED: "dim",
    Status.NOT_RUN: "dim",
}
TITLES = {
    "mixcon": "MixCon: Adjusting the Separability of Data Representations for Harder Data Recovery",
    "hidden-states": "Recovering Input Text from Hidden States",
    "gradients": "Reconstructing Training Data from Model Gradient, Provably",
}


@dataclass(frozen=True)
class Standing:
    """How far an item is.

    Args:
        item: the table or figure.
        asked: in which size, and on what.
        cells: with their verdicts.
        needs: how many runs and computations it takes.
        there: how many of them are there.
        left: the others by their keys, with the seconds that each takes on one core, about.
        missing: datasets and models that are not on this machine and that the others need.
    """

    item: Reproduction
    asked: Asked
    cells: list[Judged]
    needs: int
    there: int
    left: dict[str, float]
    missing: list[str]

    @classmethod
    def of(cls, item: Reproduction, asked: Asked, shelf: Shelf, root: Path) -> Standing:
        """How far an item is, from what is on disk."""
        needs = item.needs(asked)
        left = [need for need in needs if shelf.find(need) is None]
        seconds = {need.key: need.seconds(shelf) for need in left}
        cells = judged(item.cells(asked), shelf, item.stand_in(asked))
        return cls(item, asked, cells, len(needs), len(needs) - len(left), seconds, missing_data(left, root))

    @property
    def tally(self) -> str:
        """`4 reproduced, 2 direction only`; empty where nothing was run."""
        counts = Counter(each.status for each in self.cells)
        return ", ".join(f"{counts[status]} {status}" for status in Status if counts[status] and self.there)

    @property
    def said(self) -> str:
        """How far it is, in a line."""
        if self.there == self.needs:
            return self.tally
        done = f"{self.there} of {self.needs} there" if self.there else "not run"
        return f"{done}; needs {', '.join(self.missing)}" if self.missing else done


def show_list(asked: Asked, shelf: Shelf, root: Path, console: Console) -> None:
    """Print every table and figure, what is left to do of it, and how far it is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("table or figure", no_wrap=True)
    table.add_column("what it shows, and how far it is here", overflow="fold")
    table.add_column("left", no_wrap=True, justify="right")
    left: dict[str, float] = {}  # seconds of what is missing, each once: tables share runs
    for name in sorted([*REPRODUCTIONS, *LEFT_OUT], key=place_of):
        if name in LEFT_OUT:
            table.add_row(name, Text(LEFT_OUT[name], style="dim"), "")
            continue
        standing = Standing.of(REPRODUCTIONS[name](), asked, shelf, root)
        left |= standing.left
        said = Text(f"{standing.item.title}\n").append(standing.said, style="dim" if not standing.there else "bold")
        table.add_row(name, said, short_duration(sum(standing.left.values())) if standing.left else "–")
    console.print(table)
    whole = f"left: about so long on one core; all of it {short_duration(sum(left.values()))}, for tables share runs."
    console.print(f"{whole}\nID runs what is missing, ours beside the paper's; --quick takes small sizes.", style="dim")


def place_of(name: str) -> tuple[int, str]:
    """Where an id stands in a list: paper by paper, tables before figures; a user's own last."""
    papers = list(TITLES)
    paper, _, what = name.partition("/")
    return (papers.index(paper) if paper in papers else len(papers)), what.replace("table", "a")


def show(standing: Standing, console: Console) -> None:
    """Print one table or figure, ours beside the paper's."""
    item = standing.item
    console.print(f"{item.name}: {item.title}", style="bold", highlight=False)
    for line in filter(None, (item.note, item.stand_in(standing.asked))):
        console.print(line, style="dim", highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("cell", "paper", "ours", "seeds", "verdict"):
        table.add_column(name, overflow="fold", no_wrap=name != "cell")
    columns = dict.fromkeys(each.cell.column for each in standing.cells)
    for column in columns:
        if column:
            table.add_row(Text(column, style="bold"))
        for each in standing.cells:
            if each.cell.column == column:
                status = Text(each.status, style=STYLES[each.status])
                table.add_row("  " * bool(column) + each.cell.row, *figures_of(each), each.seeds, status)
    console.print(table)
    reasons: dict[str, list[str]] = {}
    for each in standing.cells:
        if each.status is not Status.REPRODUCED and each.figure is not None:
            reasons.setdefault(each.reason, []).append(each.cell.title)
    for reason, cells in reasons.items():
        console.print(f"{'; '.join(cells)}: {reason}", style="dim", highlight=False)
    console.print(standing.said, highlight=False)


def figures_of(each: Judged) -> tuple[str, str]:
    """The paper's figure and ours, as they are shown."""
    digits = each.cell.digits
    paper = each.cell.paper.said(digits) if each.cell.paper else "claimed"
    if each.figure is None:
        return paper, "–"
    return paper, each.figure.said(digits) if each.cell.paper else f"{100 * each.figure.mean:.0f} %"
