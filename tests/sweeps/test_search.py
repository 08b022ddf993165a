"""A search: the same proposals every time, in rounds, no cell twice, and the same front after a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import sweetspot.sweeps.sweep
from sweetspot.sweeps.axes import Grid, Range
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.grid import completed
from sweetspot.sweeps.plan import SweepCell
from sweetspot.sweeps.search import ROUND, Figures, Proposal, Search
from sweetspot.sweeps.sweep import Outcome, plan_of, show_plan, sweep
from tests.reports.settings import found_run

GRID: Grid = {
    "defence": ["compress"],
    "bottleneck": ["8", "16", "32"],
    "lambda": Range(1e-4, 1e-1),
    "sigma": Range(0.3, 3.0),
}


def figures(proposal: Proposal) -> Figures | None:
    """Stronger cells hide more and cost more; very strong ones fail."""
    lam, sigma = proposal[0].weight, proposal[0].options["sigma"]
    return None if lam * sigma > 0.2 else (1 - lam * sigma, 1 / (1 + 100 * lam * sigma))


def proposed(search: Search, rounds: Sequence[int]) -> list[str]:
    names = []
    for size in rounds:
        proposals = search.ask(size)
        names += [each[0].run_name("data", "data") for each in proposals]
        search.tell_all(figures, proposals)
    return names


def test_the_same_seed_proposes_the_same_cells_and_another_seed_others() -> None:
    first, again = (proposed(Search(GRID, {}), [8, 8, 4]) for _ in range(2))
    assert first == again
    assert len(set(first)) == 20
    assert proposed(Search({**GRID, "seed": [1]}, {}), [8, 8, 4])[0] != first[0]


def test_a_longer_search_begins_as_a_shorter_one() -> None:
    assert proposed(Search(GRID, {}), [8, 8, 8])[:12] == proposed(Search(GRID, {}), [8, 4])


def test_later_rounds_depend_on_what_came_of_the_earlier_ones() -> None:
    told, other = Search(GRID, {}), Search(GRID, {})
    first = proposed(told, [8, 8])
    names = []
    for _ in range(2):
        proposals = other.ask(8)
        names += [each[0].run_name("data", "data") for each in proposals]
        other.tell_all(lambda each: (-each[0].weight, each[0].weight), proposals)
    assert names[:8] == first[:8]
    assert names[8:] != first[8:]


def test_values_lie_within_their_ranges_and_are_short() -> None:
    grid: Grid = {"defence": ["cem"], "clusters": Range(2, 6), "sigma": Range(0.3, 3.0), "cut": [1, "pool2"]}
    search = Search(grid, {})
    for (config,) in search.ask(40):
        assert 2 <= config.options["clusters"] <= 6
        assert isinstance(config.options["clusters"], int)
        assert 0.3 <= config.options["sigma"] <= 3.0
        assert config.options["sigma"] == float(f"{config.options['sigma']:.3g}")
        assert config.cut in (1, "pool2")


def test_an_option_is_searched_only_where_a_part_has_it() -> None:
    grid: Grid = {"defence": ["nopeek", "mixcon", "none"], "lambda": Range(0.1, 10.0), "beta": Range(1e-4, 1e-2)}
    search = Search({**grid, "release": ["none", "gaussian"], "sigma": [0.5, 1.0]}, {})
    proposals = [config for (config,) in search.ask(30)]
    assert {config.defence for config in proposals} == {"nopeek", "mixcon", "none"}
    for trial in search.study.trials:
        assert ("beta" in trial.params) == (trial.params["defence"] == "mixcon")
        assert ("sigma" in trial.params) == (trial.params["release"] == "gaussian")
        assert ("lambda" in trial.params) == (trial.params["defence"] != "none")


def test_a_proposal_is_every_seed_of_a_cell() -> None:
    (proposal,) = Search({**GRID, "seed": [3, 5]}, {}).ask(1)
    assert [config.seed for config in proposal] == [3, 5]
    assert proposal[0].options == proposal[1].options


def test_a_search_in_a_small_space_ends_when_every_cell_was_made() -> None:
    grid: Grid = {"release": ["quantise"], "bits": Range(1, 4)}
    search = Search(completed(grid, is_alone=False), {})
    made: list[str] = []
    while proposals := search.ask(3):
        made += [each[0].run_name("data", "data") for each in proposals]
        search.tell_all(lambda each: (1.0, each[0].options["bits"]), proposals)
    assert len(made) == len(set(made)) == 4
    told = [trial.values for trial in search.study.trials]
    assert len(told) > 4, "what was known was told again, and asked anew"
    assert all(value is not None for value in told)


def test_what_failed_and_what_is_refused_is_told_as_failed() -> None:
    grid: Grid = {"defence": ["compress"], "release": ["none", "gaussian"], "sigma": Range(0.3, 3.0)}
    search = Search(grid, {})
    proposals = search.ask(6)
    assert all(config.release == ["gaussian"] for (config,) in proposals)
    search.tell_all(lambda each: None, proposals)
    assert {trial.state.name for trial in search.study.trials} == {"FAIL"}


def test_vanilla_comes_once_at_the_first_cut() -> None:
    search = Search({**GRID, "cut": ["pool2", "pool1"], "lr": [0.1, 0.01]}, {})
    first, second = ([*search.new_vanillas(search.ask(12))] for _ in range(2))
    assert sorted((each.lr, each.cut) for each in first) == [(0.01, "pool2"), (0.1, "pool2")]
    assert second == []


# ---------------------------------------------------------------------- a whole sweep, with runs that nobody trains


@pytest.fixture
def searching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Outcome, list[str]]]:
    """`searching(folder, count, stop_after)` searches with cells that are written down at once: what was made."""

    def make(cell: SweepCell) -> None:
        config = cell.config
        strength = config.weight * config.options.get("sigma", 0.0)
        results: dict[str, Any] = found_run(config.weight, 0.0, 0.99 - strength, 0.9 / (1 + 50 * strength)).results
        results["name"], results["defence"] = cell.name, config.defence_record()
        cell.run.create()
        cell.run.write_results(results)

    def search(folder: str, count: int, stop_after: int = 1000) -> tuple[Outcome, list[str]]:
        made: list[str] = []

        def make_cells(cells: Sequence[SweepCell], make_run: Any, config: Any, wanted: Any, watcher: Any) -> None:
            for cell in cells:
                if len(made) == stop_after:
                    raise KeyboardInterrupt
                watcher.started(cell.name)
                made.append(cell.name)
                if cell.config.weight > 0.05:
                    watcher.ended(cell.name, "no luck")
                    continue
                make(cell)
                watcher.ended(cell.name, "done")

        monkeypatch.setattr(sweetspot.sweeps.sweep, "make_cells", make_cells)
        config = SweepConfig(search=count)
        common = {"dataset": "mnist-5k", "out": str(tmp_path / folder), "attacks": ["whitebox/adaptive"]}
        plan = plan_of(config, [GRID], common)
        try:
            return sweep(config, plan, lambda *_: {}), made
        except KeyboardInterrupt:
            return Outcome([]), made

    monkeypatch.setattr(sweetspot.sweeps.sweep, "is_connected", lambda: True)
    monkeypatch.setattr(sweetspot.sweeps.sweep, "resources", lambda *_, **__: {"cpu": 1.0, "gpu": 0.0})
    monkeypatch.setattr(sweetspot.sweeps.sweep, "slots", lambda *_: 1)
    monkeypatch.setattr("sweetspot.sweeps.plan.attacked_already", lambda *_: True)
    return search


def front_of(outcome: Outcome) -> list[str]:
    ((_, verdict),) = outcome.verdicts(SweepConfig())
    return [cell.label for cell in verdict.front]


@pytest.mark.parametrize("stop_after", [0, 1, 5, 13, 19])
def test_a_search_that_was_stopped_makes_the_same_cells_and_none_twice(
    searching: Callable[..., tuple[Outcome, list[str]]], stop_after: int
) -> None:
    unbroken, all_made = searching("unbroken", 20)
    assert len(all_made) == 21
    assert "vanilla" in all_made[0], "vanilla is made first"
    assert 0 < len(unbroken.failed) < 6
    _, before = searching("broken", 20, stop_after)
    assert len(before) == stop_after
    outcome, after = searching("broken", 20)
    assert [cell.name for cell in outcome.cells] == [cell.name for cell in unbroken.cells]
    assert front_of(outcome) == front_of(unbroken)
    assert not set(after) & set(before) - set(unbroken.failed), "a failed cell is tried again, a finished one is not"
    assert len(front_of(unbroken)) > 2


def test_a_search_that_was_done_makes_nothing(searching: Callable[..., tuple[Outcome, list[str]]]) -> None:
    searching("runs", 9)
    outcome, again = searching("runs", 9)
    assert set(again) == set(outcome.failed)
    _, more = searching("runs", 12)
    assert len(set(more) - set(outcome.failed)) == 3


def test_a_dry_run_says_what_would_be_made_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = SweepConfig(search=20, dry_run=True)
    common = {"dataset": "mnist-5k", "out": str(tmp_path), "attacks": ["decoder"]}
    show_plan(config, plan_of(config, [GRID], common))
    said = capsys.readouterr().out
    assert f"{ROUND + 1} cells: 0 are there, {ROUND + 1} would run, and then up to {20 - ROUND} more proposals" in said
