"""A sweep from grid to sweet spot: what is there is kept, what is missing is made, a failure is written down."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from errors import BusyError, UserError
from reports.cells import Setting, settings_of
from reports.gathering import FoundRun
from reports.sweet_spot import Verdict, sweet_spot
from runs.config import TrainConfig
from runs.folder import Run, make_writable
from sweeps.config import SweepConfig, cells_of
from sweeps.engine import Make, connected, is_connected, make_cells, slots
from sweeps.live import SweepTable
from sweeps.plan import State, SweepCell, check_room, planned
from sweeps.refinement import named, refined

IN_A_FILE = 160  # columns: a run's name stays one word
POLL_SECONDS = 1.0  # between two looks at a cell that another process makes


class CellsFailedError(UserError):
    """Some cells of a sweep have no results; the others have."""

    exit_code = 1


@dataclass
class Outcome:
    """What came of a sweep.

    Args:
        cells: all of them, in the grid's order, refined ones last.
        failed: the error of each cell that failed, by name.
    """

    cells: list[SweepCell]
    failed: dict[str, str] = field(default_factory=dict)

    def finished(self) -> list[FoundRun]:
        """The runs that have results."""
        done = [cell for cell in self.cells if cell.run.finished and cell.name not in self.failed]
        return [FoundRun(cell.run.folder, cell.run.read_results()) for cell in done]

    def setting(self, metric: str | None) -> Setting | None:
        """The finished cells as one setting: they differ in defence and seed alone."""
        settings = settings_of(self.finished(), metric)
        return settings[0] if settings else None


def sweep(config: SweepConfig, common: dict[str, Any], make: Make) -> Outcome:
    """Make every cell of a grid that is not there yet, then the refinement; what was there is not touched.

    Args:
        config: the grid.
        common: what its runs share, fields of TrainConfig.
        make: what makes a run of a config: `train.train`.
    """
    outcome = Outcome([])
    out = Path(common.get("out") or TrainConfig.out)
    with contextlib.ExitStack() as ray:
        for cells in batches(config, common, outcome):
            outcome.cells += cells
            force = bool(common.get("force"))
            to_do = [cell for cell in cells if force or not is_done(cell)]
            if not to_do:
                continue
            check_room(out, len(to_do))
            make_writable(out, out)
            if not is_connected():
                ray.enter_context(connected(config))
            complete(outcome, to_do, config, make)
    return outcome


def batches(config: SweepConfig, common: dict[str, Any], outcome: Outcome) -> Iterator[list[SweepCell]]:
    """The grid; then, when it is there, all seeds of the cells that refine it."""
    yield planned(config.grid(common))
    setting = outcome.setting(config.metric) if config.refine else None
    if setting is None:
        return
    pairs = refined(setting, sweet_spot(setting, config.max_drop), config.refine)
    print(f"refining: {named(pairs)}" if pairs else "nothing to refine: no cell of MixCon is on the front", flush=True)
    yield planned(cells_of(pairs, config.seed, common))


def is_done(cell: SweepCell) -> bool:
    """Whether a cell has all that is asked for; results that cannot be read are not taken for done."""
    try:
        return cell.state() is State.DONE
    except UserError:
        return False


def complete(outcome: Outcome, cells: Sequence[SweepCell], config: SweepConfig, make: Make) -> None:
    """Make cells until none is left: those that another process is making are waited for, not made twice."""
    left = list(cells)
    while left:
        busy: list[SweepCell] = []

        def ended(cell: SweepCell, how: str, busy: list[SweepCell] = busy) -> None:
            if how == "busy":
                busy.append(cell)
            elif how != "done":
                outcome.failed[cell.name] = how
                write_failure(cell, how)

        there = len(outcome.cells) - len(left)
        with SweepTable(left, there, slots(config), ended) as table:
            make_cells(left, make, config, table)
        if busy:
            print(f"waiting for {len(busy)} cells that another process makes", flush=True)
            wait_for(busy)
        left = [without_force(cell) for cell in busy if not is_done(cell)]


def without_force(cell: SweepCell) -> SweepCell:
    """A cell that is taken as it is found: what another process has just made is not made again."""
    return dataclasses.replace(cell, config=dataclasses.replace(cell.config, force=False))


def wait_for(cells: Iterable[SweepCell]) -> None:
    """Return when no other process holds any of these cells."""
    for cell in cells:
        while is_held(cell.run):
            time.sleep(POLL_SECONDS)


def is_held(run: Run) -> bool:
    """Whether another process is working on a run."""
    try:
        with run.claimed():
            return False
    except (BusyError, filelock.Timeout):
        return True


def write_failure(cell: SweepCell, error: str) -> None:
    """Leave the error in the cell's folder, where there is room for it."""
    try:
        cell.run.write_failure(cell.failure(error))
    except OSError:
        return  # the disk is full, most likely: the sweep says it at the end


def check_outcome(outcome: Outcome) -> None:
    """Say which cells failed, and why."""
    if outcome.failed:
        labels = {cell.name: cell.label for cell in outcome.cells}
        reasons: dict[str, list[str]] = {}
        for name, error in outcome.failed.items():
            reasons.setdefault(error, []).append(labels[name])
        said = "; ".join(f"{', '.join(cells)}: {error}" for error, cells in reasons.items())
        raise CellsFailedError(
            f"{len(outcome.failed)} of {len(outcome.cells)} cells failed ({said}); the same command tries them again"
        )


def verdict_of(outcome: Outcome, config: SweepConfig) -> Verdict | None:
    """The sweet spot of a sweep's cells, where there are any."""
    setting = outcome.setting(config.metric)
    return sweet_spot(setting, config.max_drop) if setting else None


def show_plan(cells: Sequence[SweepCell], force: bool, console: Console | None = None) -> None:
    """Print what a sweep would do, a row a cell."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("cell", "state", "run"):
        table.add_column(column, overflow="fold")
    counted = 0
    for cell in cells:
        try:
            state = cell.state()
            words, is_there = str(state), state is State.DONE and not force
        except UserError as error:
            words, is_there = str(error), False
        counted += not is_there
        table.add_row(cell.label, Text(words), cell.name)
    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, IN_A_FILE)
    console.print(table)
    console.print(f"{len(cells)} cells: {len(cells) - counted} are there, {counted} would run", highlight=False)
