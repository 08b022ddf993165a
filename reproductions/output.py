"""The list of all tables and figures, one of them on the terminal, and the page that holds them all."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweetspot.files import replacing
from sweetspot.progress import short_duration
from sweetspot.reproductions.base import LEFT_OUT, REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.needs import Shelf, missing_data
from sweetspot.reproductions.verdict import Judged, Status, judged

PAGE = Path("docs/reproduced.md")  # what --all writes
WIDTH = 80  # columns that everything fits into
STYLES = {
    Status.REPRODUCED: "green",
    Status.DIRECTION: "yellow",
    Status.NOT_REPRODUCED: "red",
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


def markdown(standing: Standing, picture: str | None) -> str:
    """One table or figure as a section of the page; `picture` is the address of its picture."""
    item = standing.item
    command = f"python reproduce.py {item.name}{flags_of(standing.asked)}"
    lines = [f"### {item.name}: {item.title}", "", f"`{command}`", ""]
    lines += [f"{each}\n" for each in (item.note, item.stand_in(standing.asked)) if each]
    lines += [f"![{item.title}]({picture})\n"] if picture else []
    lines += ["| cell | paper | ours | seeds | verdict | why |", "|---|---|---|---|---|---|"]
    for each in standing.cells:
        row = (each.cell.title, *figures_of(each), each.seeds, f"**{each.status}**", each.reason)
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in row) + " |")
    return "\n".join([*lines, "", standing.said, ""])


def write_page(standings: Sequence[Standing], asked: Asked, shelf: Shelf, page: Path) -> None:
    """Write the page of these tables and figures, with their pictures in the folder of its name."""
    folder = page.with_suffix("")
    page.parent.mkdir(parents=True, exist_ok=True)
    which = "--all" if len(standings) == len(list(REPRODUCTIONS)) else " ".join(each.item.name for each in standings)
    parts = [
        "# What of the papers comes out here",
        f"Written by `python reproduce.py {which}{flags_of(asked)}` at commit {commit()}; not to be edited by hand. A "
        "cell is *reproduced* where it is of the paper's size and stands in the paper's order; *direction only* where "
        "only the order is the paper's. How near is near enough stands beside each.",
        summary(standings),
    ]
    paper = ""
    for standing in standings:
        name = standing.item.name
        if name.partition("/")[0] != paper:
            paper = name.partition("/")[0]
            parts.append(f"## {TITLES.get(paper, paper)}")
        picture = folder / f"{file_name(standing.item)}.png"
        folder.mkdir(exist_ok=True)
        is_drawn = standing.there > 0 and standing.item.draw(standing.asked, shelf, picture)
        address = f"{folder.name}/{picture.name}" if is_drawn else None
        parts.append(markdown(standing, address))
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def file_name(item: Reproduction) -> str:
    """An item's id as the name of a file, without its ending."""
    return re.sub(r"[^\w.-]", "-", item.name)


def flags_of(asked: Asked) -> str:
    """What is asked for as the command line says it."""
    given = {"dataset": asked.dataset, "model": asked.model, "seeds": asked.seeds}
    return (
        "".join(f" --{name} {value}" for name, value in given.items() if value is not None) + " --quick" * asked.quick
    )


def summary(standings: Sequence[Standing]) -> str:
    """How far each item is, as a table."""
    rows = [f"| {each.item.name} | {each.item.title} | {each.said} |" for each in standings]
    return "\n".join(["| | | |", "|---|---|---|", *rows])


def commit() -> str:
    """The commit that this code is of; `unknown` where it is not in a repository of its own."""
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except OSError:
        return "unknown"
    return said.stdout.strip() or "unknown"
