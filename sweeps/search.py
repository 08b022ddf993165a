"""Search: where a grid is too large, Optuna's TPE chooses which of its cells to make by what the others gave.

Proposals come in rounds of a fixed size: a round is asked for, made, and told in its order. What is asked for so
depends on the seed and on the cells' figures alone, never on who was faster, and a search that was stopped asks for the
same cells again and finds those that are there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna

from sweetspot.errors import UnfitError
from sweetspot.reports.cells import settings_of
from sweetspot.reports.gathering import FoundRun
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.axes import Axis, Grid
from sweetspot.sweeps.grid import config_of, in_order, listed, meant_by, same_run, vanillas

ROUND = 8  # proposals that are asked for at once; those of the first round are drawn at random
TRIES = 50  # for a proposal that was not made before
Proposal = tuple[TrainConfig, ...]  # one config a seed
Figures = tuple[float, float]  # utility, and what comes back


class Search:
    """Proposals by what earlier ones gave.

    Args:
        grid: a completed one.
        common: what all runs share, fields of TrainConfig.
        lower_is_useful: whether utility is better when it is lower, as perplexity is.
    """

    def __init__(self, grid: Grid, common: Mapping[str, Any], lower_is_useful: bool = False) -> None:
        self.grid, self.common = grid, common
        self.seeds = listed(grid, "seed") or [TrainConfig.seed]
        self.made: dict[str, Figures | None] = {}  # what every proposal of earlier rounds gave; None: it failed
        self.waiting: list[tuple[optuna.Trial, str]] = []  # of this round, to be told in this order
        self.vanillas: dict[str, TrainConfig] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            directions=["minimize" if lower_is_useful else "maximize", "minimize"],
            sampler=optuna.samplers.TPESampler(seed=self.seeds[0], n_startup_trials=ROUND),
        )

    def ask(self, count: int) -> list[Proposal]:
        """A round: up to so many proposals that no round had before; fewer where no more can be found."""
        found: dict[str, Proposal] = {}
        tries = 0
        while len(found) < count and tries < TRIES:
            tries += 1
            trial = self.study.ask()
            values = self.suggested(trial)
            try:
                proposal = tuple(config_of({**values, "seed": seed}, self.common) for seed in self.seeds)
            except UnfitError:
                self.tell(trial, None)
                continue
            key = same_run(proposal[0])
            if key in self.made:
                self.tell(trial, self.made[key])
                continue
            self.waiting.append((trial, key))
            if key not in found:
                found[key] = proposal
                tries = 0
        return list(found.values())

    def suggested(self, trial: optuna.Trial) -> dict[str, Any]:
        """One value of each axis; of options those that the chosen parts have, and of a penalty that is none no λ."""
        names = [name for name in in_order(self.grid) if name != "seed"]
        parts = {name: suggest(trial, name, self.grid[name]) for name in names if name in ("defence", "release")}
        kept = meant_by({**dict.fromkeys(names), **parts}).keys()
        left_out = {"lambda"} if parts["defence"] == "none" else set()
        rest = [name for name in names if name in kept - left_out and name not in parts]
        return {**parts, **{name: suggest(trial, name, self.grid[name]) for name in rest}}

    def new_vanillas(self, proposals: Sequence[Proposal]) -> list[TrainConfig]:
        """The networks without a defence that these proposals are compared with, and no earlier ones were."""
        cut = (listed(self.grid, "cut") or [TrainConfig.cut])[0]
        found = {}
        for each in vanillas(config for proposal in proposals for config in proposal):
            key = same_run(each, without=["cut"])
            if key not in self.vanillas:
                found[key] = dataclasses.replace(each, cut=cut)
        self.vanillas |= found
        return list(found.values())

    def tell_all(self, figures: Callable[[Proposal], Figures | None], proposals: Sequence[Proposal]) -> None:
        """End a round: what each of its proposals gave."""
        self.made |= {same_run(proposal[0]): figures(proposal) for proposal in proposals}
        for trial, key in self.waiting:
            self.tell(trial, self.made[key])
        self.waiting = []

    def tell(self, trial: optuna.Trial, figures: Figures | None) -> None:
        """What a proposal gave; None: it failed."""
        if figures is None:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(trial, figures)


def suggest(trial: optuna.Trial, name: str, axis: Axis) -> Any:
    """A value of an axis."""
    if isinstance(axis, list):
        return axis[0] if len(axis) == 1 else trial.suggest_categorical(name, axis)
    if axis.is_whole:
        return trial.suggest_int(name, int(axis.low), int(axis.high))
    return axis.rounded(trial.suggest_float(name, axis.low, axis.high, log=axis.is_log))


def figures_of(runs: Sequence[FoundRun], metric: str | None) -> Figures | None:
    """What the runs of one cell are worth and what comes back from them, over seeds; None where it was not measured."""
    for setting in settings_of(runs, metric):
        for cell in setting.cells:
            if not cell.channel and cell.recovery is not None:
                found = (cell.utility.mean, cell.recovery.mean)
                return found if all(map(math.isfinite, found)) else None
    return None
