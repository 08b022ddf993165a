"""What a person sees of a sweep: a live table of its cells on a terminal, a line a cell in a log, and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweetspot.errors import UserError
from sweetspot.progress import duration
from sweetspot.reports.cells import NAMES
from sweetspot.reports.tables import in_short
from sweetspot.sweeps.plan import SweepCell

AROUND_THE_TABLE = 6  # lines of a terminal that are not rows of cells


@dataclass
class Row:
    """A cell as the table shows it."""

    cell: SweepCell
    state: str = "waiting"
    began: float = 0.0
    seconds: float = 0.0
    epoch: int = 0
    epochs: int = 0
    training: float = 0.0  # seconds that its epochs will take, by those it has trained
    figures: str = ""

    @property
    def order(self) -> int:
        """Running cells first, then failed and finished ones, those that wait last."""
        return {"running": 0, "failed": 1, "done": 2, "elsewhere": 3}.get(self.state, 4)


class SweepTable:
    """The live table; told by the engine how cells get on, and tells how each of them ended to `ended_with`.

    Args:
        cells: those that are to be made.
        there: how many of the grid are done already.
        slots: how many cells run at a time, for the estimate.
        ended_with: called with a cell and `done`, `busy` or its error; what it gives back is what is shown.
        console: where to show it.
    """

    def __init__(
        self,
        cells: Sequence[SweepCell],
        there: int,
        slots: int,
        ended_with: Callable[[SweepCell, str], str],
        console: Console | None = None,
    ) -> None:
        self.rows = {cell.name: Row(cell) for cell in cells}
        self.there, self.slots, self.ended_with = there, slots, ended_with
        self.console = console or Console()
        self.live = Live(get_renderable=self.shown, console=self.console, refresh_per_second=2)

    def __enter__(self) -> SweepTable:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def started(self, name: str) -> None:
        row = self.rows[name]
        row.state, row.began = "running", time.monotonic()

    def progressed(self, name: str, epoch: int, epochs: int) -> None:
        row = self.rows[name]
        row.epoch, row.epochs = epoch, epochs
        row.training = (time.monotonic() - row.began) * epochs / epoch

    def ended(self, name: str, outcome: str) -> None:
        row = self.rows[name]
        if row.state in ("done", "failed", "elsewhere"):
            return
        row.seconds = time.monotonic() - row.began if row.state == "running" else 0.0
        outcome = self.ended_with(row.cell, outcome)
        row.state = {"done": "done", "busy": "elsewhere"}.get(outcome, "failed")
        row.figures = figures_of(row.cell) if outcome == "done" else outcome if row.state == "failed" else ""
        if not self.console.is_terminal:
            self.console.print(self.line(row), highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        """Cells that began and of which nothing more was heard have failed."""
        for name, row in self.rows.items():
            if row.state in ("running", "waiting"):
                self.ended(name, "its process ended without a word")

    def count(self, state: str) -> int:
        """How many cells are in a state."""
        return sum(row.state == state for row in self.rows.values())

    def left(self) -> str:
        """How long the rest will take, from the cells that ended; until one has, what training alone will take."""
        now = time.monotonic()
        under_way = [row for row in self.rows.values() if row.state == "running"]
        ended = [row.seconds for row in self.rows.values() if row.state == "done"]
        if not (spent := ended or [row.training for row in under_way if row.training]):
            return ""
        each = sum(spent) / len(spent)
        running = [max(0.0, each - (now - row.began)) for row in under_way]
        work = each * self.count("waiting") + sum(running)
        about = "about" if ended else "more than"
        return f"{about} {duration(max(work / self.slots, *running, 0.0))} left" if work else ""

    def line(self, row: Row) -> str:
        """One line of a log."""
        ended = self.there + sum(row.state not in ("waiting", "running") for row in self.rows.values())
        words = {"done": row.figures, "failed": f"failed: {row.figures}"}.get(row.state, "another process makes it")
        took = duration(row.seconds)
        parts = [f"{ended} of {self.there + len(self.rows)}", row.cell.label, words, took, self.left()]
        return "  ".join(part for part in parts if part)

    def shown(self) -> Group:
        """The table as it stands: as many rows as the terminal has room for, running cells first."""
        room = max(3, self.console.height - AROUND_THE_TABLE)
        rows = sorted(self.rows.values(), key=lambda row: (row.order, -row.began))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in ("cell", "", "time"):
            table.add_column(column, justify="right" if column == "time" else "left", no_wrap=True)
        for row in rows[:room]:
            seconds = time.monotonic() - row.began if row.state == "running" else row.seconds
            style = {"running": "bold", "failed": "red", "waiting": "dim"}.get(row.state, "")
            table.add_row(row.cell.label, Text(doing(row)), duration(seconds) if seconds else "", style=style)
        ended = self.there + self.count("done")
        failed = f", {self.count('failed')} failed" if self.count("failed") else ""
        more = f", {len(rows) - room} more not shown" if len(rows) > room else ""
        line = f"{ended} of {self.there + len(rows)} done{failed}{more}   {self.left()}"
        return Group(table, Text(line))


def doing(row: Row) -> str:
    """What a cell is at, or what came of it."""
    if row.state != "running":
        return row.figures or {"elsewhere": "another process makes it"}.get(row.state, row.state)
    if not row.epochs:
        return "starting"
    if row.epoch < row.epochs:
        return f"epoch {row.epoch} of {row.epochs}"
    return "ending" if row.cell.config.attacks == ["none"] else "under attack"


def figures_of(cell: SweepCell) -> str:
    """What a finished cell is worth, and what comes back from it."""
    try:
        results = cell.run.read_results()
    except UserError as error:
        return str(error)
    worst = results["worst_case"]
    metric = next((name for name in ("ssim", "mcs", "similarity") if name in worst), None)
    recovered = f", worst-case {NAMES[metric]} {worst[metric]['mean']:.3f}" if metric else ""
    return f"{in_short(results['utility'])}{recovered}"
