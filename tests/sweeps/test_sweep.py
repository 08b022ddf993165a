"""What a sweep believes, keeps and says about its cells."""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import sweetspot.sweeps.live
import sweetspot.sweeps.sweep
from sweetspot.errors import UserError
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.axes import Grid
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.live import SweepTable
from sweetspot.sweeps.plan import SweepCell, planned
from sweetspot.sweeps.sweep import CellsFailedError, Outcome, check_outcome, is_done, plan_of, seen, set_aside, sweep
from sweetspot.training import train

pytestmark = pytest.mark.xdist_group("ray")  # one cluster of a machine at a time
Config = Callable[..., TrainConfig]


@pytest.fixture
def cells(config: Config) -> list[SweepCell]:
    """Two cells that nobody has made."""
    return planned([config(lam=lam, epochs=1) for lam in (0.0, 1.0)])


def test_a_cell_is_done_when_its_results_are_seen_here(
    cells: list[SweepCell], config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweetspot.sweeps.sweep, "UNTIL_SEEN", 0.0)
    monkeypatch.setattr(sweetspot.sweeps.sweep, "POLL_SECONDS", 0.0)
    assert "every machine must see the same --out" in seen(cells[0])
    train(cells[0].config)
    assert seen(cells[0]) == "done"


def test_results_that_lack_something_are_not_done_and_it_is_named(cells: list[SweepCell]) -> None:
    train(cells[0].config)
    results = cells[0].run.read_results()
    del results["config"]["trainer"]
    cells[0].run.write_results(results)
    assert not is_done(cells[0])
    assert "results.json cannot be read (no config.trainer in it)" in seen(cells[0])


def test_a_cell_that_failed_once_and_was_made_since_has_not_failed(cells: list[SweepCell]) -> None:
    for cell in cells:
        train(cell.config)
    cells[0].run.write_failure(cells[0].failure("no luck"))
    common = dataclasses.asdict(cells[0].config)
    for name in ("lam", "defence", "release", "options", "seed"):
        del common[name]
    grid: Grid = {"lambda": [1.0], "beta": [cells[1].config.defence_record()["beta"]], "seed": [cells[0].config.seed]}
    config = SweepConfig()
    outcome = sweep(config, plan_of(config, [grid], common), train)  # nothing is left to do, so no Ray is begun
    assert [cell.name for cell in outcome.cells] == [cell.name for cell in cells]
    assert not outcome.failed
    assert not cells[0].run.failure.exists()


def test_what_is_made_again_is_kept_as_it_was(cells: list[SweepCell]) -> None:
    train(cells[0].config)
    before = cells[0].run.results.read_text()
    set_aside(cells)
    assert not cells[0].run.finished
    assert (cells[0].run.folder.parent / ".previous" / cells[0].name / "results.json").read_text() == before
    with cells[1].run.claimed():  # in another's hands: left to it
        set_aside(cells)


def test_some_failures_are_listed_and_a_common_one_is_the_commands(cells: list[SweepCell]) -> None:
    for cell in cells:
        train(cell.config)
    check_outcome(Outcome(cells))
    with pytest.raises(CellsFailedError, match=r"1 of 2 cells failed \(Vanilla, seed 0: no luck\)") as some:
        check_outcome(Outcome(cells, {cells[0].name: "no luck"}))
    with pytest.raises(UserError, match="every cell failed: no such cut") as every:
        check_outcome(Outcome(cells, {cell.name: "no such cut" for cell in cells}))
    with pytest.raises(UserError, match="every cell failed: no room: file 0") as alike:  # each names its own file
        check_outcome(Outcome(cells, {cell.name: f"no room: file {n}" for n, cell in enumerate(cells)}))
    assert [each.value.exit_code for each in (some, every, alike)] == [1, 2, 2]


def test_results_that_another_process_took_away_are_missed(cells: list[SweepCell]) -> None:
    train(cells[0].config)
    with pytest.raises(CellsFailedError, match=r"1 of 2 cells failed .*its results are gone"):
        check_outcome(Outcome(cells))


def test_a_log_has_a_line_a_cell_and_what_is_left(
    cells: list[SweepCell], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sweetspot.sweeps.live, "figures_of", lambda cell: "98 %")
    file = io.StringIO()
    with SweepTable(cells, 3, 1, lambda cell, how: how, Console(file=file, width=120)) as table:
        table.started(cells[0].name)
        clock[0] = 90.0
        table.ended(cells[0].name, "done")
        table.started(cells[1].name)
        table.progressed(cells[1].name, 1, 4)
        table.ended(cells[1].name, "no luck")
        table.ended(cells[1].name, "done")  # what a dead process is said to have done later is not believed
    first, second = file.getvalue().splitlines()
    assert first == "4 of 5  Vanilla, seed 0  98 %  1 min 30 s  about 1 min 30 s left"
    assert second == "5 of 5  MixCon(1, 1e-4), seed 0  failed: no luck  0 s"


def test_until_a_cell_has_ended_the_epochs_tell_what_is_left_at_least(
    cells: list[SweepCell], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    table = SweepTable(cells, 0, 1, lambda cell, how: how, Console(file=io.StringIO()))
    table.started(cells[0].name)
    assert table.left() == ""
    clock[0] = 10.0
    table.progressed(cells[0].name, 1, 4)  # 30 s of this one and 40 s of the other, attacks not counted
    assert table.left() == "more than 1 min 10 s left"


def test_the_table_shows_running_cells_first_and_fits_the_terminal(cells: list[SweepCell]) -> None:
    console = Console(file=io.StringIO(), width=100, height=9, force_terminal=True)
    table = SweepTable(cells, 0, 2, lambda cell, how: how, console)
    table.started(cells[1].name)
    table.progressed(cells[1].name, 2, 4)
    with console.capture() as captured:
        console.print(table.shown())
    said = captured.get()
    assert said.index("MixCon(1, 1e-4), seed 0") < said.index("Vanilla, seed 0")
    assert "epoch 2 of 4" in said
    assert "0 of 2 done" in said


def test_cells_of_which_nothing_was_heard_have_failed(cells: list[SweepCell]) -> None:
    heard: list[str] = []

    def ended(cell: SweepCell, how: str) -> str:
        heard.append(how)
        return how

    table = SweepTable(cells, 0, 1, ended, Console(file=io.StringIO()))
    table.started(cells[0].name)
    table.close()
    assert heard == ["its process ended without a word"] * 2
