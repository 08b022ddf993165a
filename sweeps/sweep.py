"""A sweep from its cells to a sweet spot: what is there is kept, what is missing is made, a failure is written down."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweetspot.errors import BusyError, UserError
from sweetspot.evaluations.dispatch import check_attacks_fit
from sweetspot.reports.cells import NAMES, Setting, settings_of
from sweetspot.reports.fairness import few
from sweetspot.reports.gathering import FoundRun, read_whole
from sweetspot.reports.sweet_spot import Verdict, spread, sweet_spot, useful
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import make_writable
from sweetspot.sweeps.axes import Grid
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.engine import Make, connected, is_connected, make_cells, resources, slots
from sweetspot.sweeps.grid import completed, ends_of, laid_out, varied
from sweetspot.sweeps.live import SweepTable
from sweetspot.sweeps.plan import State, SweepCell, check_room, kind_of_data, planned
from sweetspot.sweeps.search import ROUND, Figures, Proposal, Search, figures_of

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
        cells: all of them, in the grid's order, or a search's.
        failed: the error of each cell that failed, by name.
    """

    cells: list[SweepCell]
    failed: dict[str, str] = field(default_factory=dict)

    def finished(self) -> list[FoundRun]:
        """The runs that have results."""
        done = [cell for cell in self.cells if cell.run.finished and cell.name not in self.failed]
        return [FoundRun(cell.run.folder, read_whole(cell.run)) for cell in done]

    def runs_of(self, cells: Iterable[SweepCell]) -> list[FoundRun]:
        """The runs of some cells; none of them where one has failed."""
        cells = list(cells)
        made = all(cell.run.finished and cell.name not in self.failed for cell in cells)
        return [FoundRun(cell.run.folder, read_whole(cell.run)) for cell in cells] if made else []

    def verdicts(self, config: SweepConfig) -> list[tuple[Setting, Verdict]]:
        """The sweet spot of the finished cells, for each set of them that can be compared."""
        return [(each, sweet_spot(each, config.max_drop)) for each in settings_of(self.finished(), config.metric)]


@dataclass(frozen=True)
class Plan:
    """Which cells a sweep is about.

    Args:
        grids: of the sweep, completed; of a search one, with ranges.
        common: what all runs share, fields of TrainConfig.
        configs: of all cells; of a search those at the ends of its ranges.
        note: about what was left out.
    """

    grids: list[Grid]
    common: dict[str, Any]
    configs: list[TrainConfig]
    note: str = ""

    @property
    def varied(self) -> list[str]:
        """The fields and options in which its cells differ."""
        return varied(self.configs)


def plan_of(
    config: SweepConfig,
    grids: Sequence[Grid],
    common: Mapping[str, Any],
    shared: Sequence[Collection[str]] | None = None,
) -> Plan:
    """What a sweep is about; refused, before anything begins, where it would fail in every cell or means nothing.

    Args:
        config: of the sweep.
        grids: as they were given.
        common: what all runs share, fields of TrainConfig.
        shared: of each grid the flags that stand beside it.
    """
    config.check_ranges(grids, common)
    shared = shared or [()] * len(grids)
    is_alone = not config.grids and config.search is None
    whole = [completed(grid, is_alone, beside) for grid, beside in zip(grids, shared, strict=True)]
    found = laid_out([ends_of(grid) for grid in whole], common, shared)
    check_cells(config, found.configs)
    return Plan(whole, dict(common), found.configs, "" if config.search else found.note)


def sweep(config: SweepConfig, plan: Plan, make: Make) -> Outcome:
    """Make every cell of a grid or a search that is not there yet; what was there is not touched.

    Args:
        config: how it is made and judged.
        plan: its cells.
        make: what makes a run of a config: `train.train`.
    """
    outcome, force = Outcome([]), bool(plan.common.get("force"))
    out = Path(plan.configs[0].out)
    with contextlib.ExitStack() as stack:
        for batch in batches(config, plan, outcome):
            known = {cell.name for cell in outcome.cells}
            cells = list({cell.name: cell for cell in batch if cell.name not in known}.values())
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


def check_cells(config: SweepConfig, configs: Sequence[TrainConfig]) -> None:
    """Refuse, before anything begins, what would fail in every cell or mean nothing in a grid."""
    common = configs[0]
    if any(each.cut == "?" for each in configs):
        raise UserError("--cut ? lists the places where one network can be cut: ask train.py")
    networks = {each.network: each for each in configs}
    for name, each in networks.items():
        if each.attacks != ["none"]:
            check_attacks_fit("every cell" if len(networks) == 1 else f"--network {name}", each.is_language, each)
    several = {name: common.trainer[name] for name in ("devices", "num_nodes") if common.trainer.get(name, 1) != 1}
    if several:
        flag, value = next(iter(several.items()))
        raise UserError(f"a cell of a sweep has one device: leave --trainer.{flag} {value} out, or use train.py")
    if common.trainer.get("fast_dev_run"):
        raise UserError("a cell of a sweep leaves a run: leave --trainer.fast_dev_run out, or use train.py")
    for kind in sorted({kind_of_data(each) for each in configs}):
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


def batches(config: SweepConfig, plan: Plan, outcome: Outcome) -> Iterator[list[SweepCell]]:
    """The cells of a grid at once, those of a search round by round: each is asked for when the one before is made."""
    if config.search is None:
        yield planned(without_force(plan.configs), plan.varied)
        return
    search = search_of(plan)
    asked = 0

    def figures(proposal: Proposal) -> Figures | None:
        return figures_of(outcome.runs_of(planned(proposal)), config.metric)

    while asked < config.search:
        proposals = search.ask(min(ROUND, config.search - asked))
        if not proposals:
            print(f"the search ends after {asked} cells: it finds no other ones", flush=True)
            return
        print(f"search: {asked + 1} to {asked + len(proposals)} of {config.search}", flush=True)
        yield cells_of_round(search, proposals, plan)
        asked += len(proposals)
        search.tell_all(figures, proposals)
        if not any(search.made.values()) and not outcome.finished():
            return  # every cell failed: so would the others


def search_of(plan: Plan) -> Search:
    """The search of a plan, from its beginning."""
    return Search(plan.grids[0], plan.common, kind_of_data(plan.configs[0]) == "text")


def cells_of_round(search: Search, proposals: Sequence[Proposal], plan: Plan) -> list[SweepCell]:
    """The cells of a round: vanilla first where it is not there, then every seed of every proposal."""
    configs = [*search.new_vanillas(proposals), *(config for each in proposals for config in each)]
    return planned(without_force(configs), plan.varied)


def without_force(configs: Sequence[TrainConfig]) -> list[TrainConfig]:
    """Configs for cells: what is to be made again is set aside by the sweep itself, once."""
    return [dataclasses.replace(config, force=False) for config in configs]


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


def show_verdicts(
    verdicts: Sequence[tuple[Setting, Verdict]], with_front: bool, console: Console | None = None
) -> None:
    """Print the verdict of each setting, under its title where there are several; of a search its front above it."""
    console = console or Console()
    for setting, verdict in verdicts:
        if len(verdicts) > 1:
            console.print(setting.title, style="bold", highlight=False, soft_wrap=True, markup=False)
        if with_front and verdict.front:
            console.print(front_table(setting, verdict))
        for line in (verdict.sentence, *(f"  {note}" for note in verdict.notes)):
            console.print(line, highlight=False, soft_wrap=True, markup=False)


def front_table(setting: Setting, verdict: Verdict) -> Table:
    """The cells that no other beats in both utility and recovery."""
    table = Table("front", setting.utility, NAMES[setting.recovery], box=SIMPLE_HEAD, pad_edge=False)
    for cell in verdict.front:
        assert cell.recovery is not None
        table.add_row(Text(cell.label), useful(setting, cell), spread(cell.recovery, 3))
    return table


def show_plan(config: SweepConfig, plan: Plan, console: Console | None = None) -> None:
    """Print what a sweep would do, a row a cell; of a search its first round."""
    force = bool(plan.common.get("force"))
    if config.search is None:
        cells, more = planned(plan.configs, plan.varied), ""
    else:
        search = search_of(plan)
        proposals = search.ask(min(ROUND, config.search))
        cells, left = cells_of_round(search, proposals, plan), config.search - len(proposals)
        more = f", and then up to {left} more proposals by what these give" if left else ""
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
    console.print(f"{len(cells)} cells: {len(cells) - counted} are there, {counted} would run{more}", highlight=False)
