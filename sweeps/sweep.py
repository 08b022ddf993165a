"""A sweep from grid to sweet spot: what is there is kept, what is missing is made, a failure is written down."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from errors import BusyError, UserError
from evaluations.dispatch import check_attacks_fit
from reports.cells import Setting, settings_of
from reports.fairness import few
from reports.gathering import FoundRun, read_whole
from reports.sweet_spot import Verdict, sweet_spot
from runs.config import TrainConfig
from runs.folder import make_writable
from sweeps.config import SweepConfig, cells_of
from sweeps.engine import Make, connected, is_connected, make_cells, resources, slots
from sweeps.live import SweepTable
from sweeps.plan import State, SweepCell, check_room, kind_of_data, planned
from sweeps.refinement import named, refined

IN_A_FILE = 160  # columns: a run's name stays one word
POLL_SECONDS = 1.0  # between two looks at a cell that another process makes
UNTIL_SEEN = 10.0  # seconds that a file system may take to show what another machine wrote
MEASURED = {  # what a sweet spot can be chosen by
    "text": ("similarity", "em", "token_accuracy"),
    "images": ("ssim", "psim", "psnr", "recognised"),
    "vectors": ("mcs", "recognised"),
}


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
        return [FoundRun(cell.run.folder, read_whole(cell.run)) for cell in done]

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
    check_common(config, TrainConfig(**common))
    outcome, force = Outcome([]), bool(common.get("force"))
    out = Path(common.get("out") or TrainConfig.out)
    with contextlib.ExitStack() as stack:
        for cells in batches(config, {**common, "force": False}, outcome):
            outcome.cells += cells
            there = {} if force else {cell.name: cell for cell in cells if is_done(cell)}
            for cell in there.values():
                cell.run.failure.unlink(missing_ok=True)  # what failed before was made since
            to_do = [cell for cell in cells if cell.name not in there]
            if not to_do:
                continue
            check_room(out, to_do)
            make_writable(out, out)
            if not is_connected():
                stack.enter_context(connected(config))
            wanted = resources(config, on_cpu=to_do[0].config.trainer.get("accelerator") == "cpu")
            if force:  # nothing can be refused any more
                set_aside(to_do)
            complete(outcome, to_do, config, wanted, make)
    return outcome


def check_common(config: SweepConfig, common: TrainConfig) -> None:
    """Refuse, before anything begins, what would fail in every cell or mean nothing in a grid."""
    if common.attacks != ["none"]:
        check_attacks_fit("every cell", common.is_language, common)
    several = {name: common.trainer[name] for name in ("devices", "num_nodes") if common.trainer.get(name, 1) != 1}
    if several:
        flag, value = next(iter(several.items()))
        raise UserError(f"a cell of a sweep has one device: leave --trainer.{flag} {value} out, or use train.py")
    if common.trainer.get("fast_dev_run"):
        raise UserError("a cell of a sweep leaves a run: leave --trainer.fast_dev_run out, or use train.py")
    kind = kind_of_data(common)
    if config.metric is not None and config.metric not in MEASURED[kind]:
        raise UserError(f"--metric {config.metric} is not measured on {kind}; {', '.join(MEASURED[kind])} are")
    out = Path(common.out)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is no folder; choose another")


def set_aside(cells: Iterable[SweepCell]) -> None:
    """Make room for cells that are to be made again: what they were is kept in `.previous/`."""
    for cell in cells:
        if cell.run.finished:
            with contextlib.suppress(BusyError), cell.run.claimed():
                cell.run.set_aside()


def batches(config: SweepConfig, common: dict[str, Any], outcome: Outcome) -> Iterator[list[SweepCell]]:
    """The grid; then, when it is there, all seeds of the cells that refine it."""
    yield planned(config.grid(common))
    setting = outcome.setting(config.metric) if config.refine else None
    if setting is None:
        return
    known = {(cell.config.weight, cell.config.defence_record()["beta"]) for cell in outcome.cells}
    pairs = refined(setting, sweet_spot(setting, config.max_drop), config.refine, known)
    fewer = f" (no more than {len(pairs)} lie around the front)" if len(pairs) < config.refine else ""
    words = f"refining: {named(pairs)}{fewer}"
    print(words if pairs else "nothing to refine: no attacked cell of MixCon is on the front", flush=True)
    yield planned(cells_of(pairs, config.seed, common))


def is_done(cell: SweepCell) -> bool:
    """Whether a cell has all that is asked for; results that cannot be read are not taken for done."""
    try:
        return cell.state() is State.DONE
    except UserError:
        return False


def complete(
    outcome: Outcome, cells: Sequence[SweepCell], config: SweepConfig, wanted: dict[str, float], make: Make
) -> None:
    """Make cells until none is left: those that another process is making are waited for, not made twice."""
    left = list(cells)
    while left:
        busy: list[SweepCell] = []

        def ended(cell: SweepCell, how: str, busy: list[SweepCell] = busy) -> str:
            how = seen(cell) if how == "done" else how
            if how == "busy":
                busy.append(cell)
            elif how != "done":
                outcome.failed[cell.name] = how
                write_failure(cell, how)
            return how

        there = sum(is_done(cell) for cell in outcome.cells)
        with SweepTable(left, there, slots(config, wanted), ended) as table:
            make_cells(left, make, config, wanted, table)
            table.close()
        if busy:
            print(f"waiting for {len(busy)} cells that another process makes", flush=True)
            wait_for(busy)
        left = [cell for cell in busy if not is_done(cell)]


def seen(cell: SweepCell) -> str:
    """`done`, if this machine sees the results of a cell, else what is wrong with them.

    Another machine's file may take a moment to show.
    """
    deadline = time.monotonic() + UNTIL_SEEN
    while True:
        try:
            if cell.state() is State.DONE:
                return "done"
        except UserError as error:
            return str(error)
        if time.monotonic() > deadline:
            return f"it was made, and {cell.run.results} is not here: every machine must see the same --out"
        time.sleep(POLL_SECONDS)


def wait_for(cells: Iterable[SweepCell]) -> None:
    """Return when no other process holds any of these cells."""
    for cell in cells:
        while cell.run.is_held():
            time.sleep(POLL_SECONDS)


def write_failure(cell: SweepCell, error: str) -> None:
    """Leave the error in the cell's folder, where there is room for it."""
    with contextlib.suppress(OSError):  # the disk is full, most likely: the sweep says it at the end
        cell.run.folder.mkdir(parents=True, exist_ok=True)
        cell.run.write_failure(cell.failure(error))


def check_outcome(outcome: Outcome) -> None:
    """Say which cells failed, and why; what is wrong with all of them is wrong with the command."""
    for cell in outcome.cells:
        if cell.name not in outcome.failed and not cell.run.finished:
            outcome.failed[cell.name] = "its results are gone: another process made it anew meanwhile"
    if not outcome.failed:
        return
    labels = {cell.name: cell.label for cell in outcome.cells}
    reasons: dict[str, list[str]] = {}
    for name, error in outcome.failed.items():
        reasons.setdefault(error, []).append(labels[name])
    if len(outcome.failed) == len(outcome.cells):
        raise UserError(f"every cell failed: {next(iter(reasons))}")
    said = "; ".join(f"{few(cells, 4)}: {error}" for error, cells in reasons.items())
    raise CellsFailedError(
        f"{len(outcome.failed)} of {len(outcome.cells)} cells failed ({said}); the same command tries them again"
    )


def verdict_of(outcome: Outcome, config: SweepConfig) -> Verdict | None:
    """The sweet spot of a sweep's cells, where there are any."""
    setting = outcome.setting(config.metric)
    return sweet_spot(setting, config.max_drop) if setting else None


def show_plan(cells: Sequence[SweepCell], config: SweepConfig, force: bool, console: Console | None = None) -> None:
    """Print what a sweep would do, a row a cell."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("cell", "state", "run"):
        table.add_column(column, overflow="fold")
    counted = 0
    for cell in cells:
        try:
            state = cell.state()
            words, is_there = str(state), state is State.DONE and not force
            if cell.run.failure.is_file():
                words += f": {cell.run.read_failure()['error']}"
        except UserError as error:
            words, is_there = str(error), False
        counted += not is_there
        table.add_row(cell.label, Text(words), cell.name)
    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, IN_A_FILE)
    console.print(table)
    more = f", and then up to {config.refine} more around the front" if config.refine else ""
    console.print(f"{len(cells)} cells: {len(cells) - counted} are there, {counted} would run{more}", highlight=False)
