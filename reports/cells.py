"""Runs as cells of grids: what belongs on one map, its seeds taken together, and how its recovery is measured."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.summary import FLOOR, worst_scores
from reports.gathering import FoundRun
from reports.tables import describe_defence
from runs.matching import is_vanilla, without_defence

NAMES = {
    "accuracy": "accuracy", "perplexity": "perplexity", "ssim": "SSIM", "psim": "PSIM", "mcs": "cosine similarity",
    "mse": "MSE", "psnr": "PSNR", "em": "exact match", "token_accuracy": "tokens right", "similarity": "similarity",
    "recognised": "class recognised", "rank": "rank",
}  # fmt: skip
WORST = "worst-case"  # recovery by the strongest attack on each input
LEAST_TO_HALVE = 20  # inputs; half of fewer would say nothing
RECOGNISABLE = {"ssim": 0.3}  # below it a person no longer recognises an image


OLDER: dict[str, Any] = {"bottleneck": None, "release": []}  # what records of penalties alone leave out


@dataclass(frozen=True)
class Spread:
    """A figure over seeds: mean, standard deviation (0 for one seed), how many.

    Example:
        >>> Spread.of([0.25, 0.75])
        Spread(mean=0.5, std=0.3535533905932738, count=2)
    """

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for one seed, which tells nothing about it."""
        return self.std / math.sqrt(self.count)


@dataclass(frozen=True)
class Halves:
    """Recovery on either half of the attacked inputs: a cell is chosen by the one and reported by the other.

    Args:
        choice: over seeds, on the inputs that cells are chosen by.
        report: over seeds, on the other ones.
        inputs: how many were attacked in all.
    """

    choice: Spread
    report: Spread
    inputs: int


@dataclass(frozen=True)
class Cell:
    """One point of a grid: a defence, for text with a channel behind it, over all its seeds.

    Args:
        defence: its record, as in results.json.
        channel: what happens to the states on their way, for text; empty: nothing.
        runs: one a seed.
        utility: accuracy, or perplexity.
        recovery: the setting's metric, worst case over attacks, mean over inputs; None where not every seed was
            attacked, and by the same attacks.
        attacks: what the worst case is over.
        halves: the same on either half of the inputs; None where there is no recovery, or too few inputs to halve.
    """

    defence: dict[str, Any]
    channel: str
    runs: tuple[FoundRun, ...]
    utility: Spread
    recovery: Spread | None
    attacks: frozenset[str]
    halves: Halves | None = None

    @property
    def label(self) -> str:
        """`MixCon(1, 1e-4)`, with whatever else the defence or the channel is."""
        rare = [
            f"{name} {self.defence[name]}" for name in ("family",) if self.defence.get(name, "inverse") != "inverse"
        ]
        return " + ".join([describe_defence(self.defence), *rare, *([self.channel] if self.channel else [])])

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds of its runs."""
        return frozenset(run.results["config"]["seed"] for run in self.runs)

    @property
    def gap(self) -> str:
        """Why there is no recovery, where there is none."""
        return (
            "its seeds were not attacked alike" if any(run.results["attacks"] for run in self.runs) else "not attacked"
        )

    @property
    def is_vanilla(self) -> bool:
        """Whether nothing defends it: no penalty, no channel."""
        return is_vanilla(self.defence) and not self.channel


@dataclass(frozen=True)
class Setting:
    """Cells that differ in nothing but their defence and their seeds.

    Args:
        title: the data, the network, the cut.
        about: what the runs share, as results.json has it; of the first run.
        utility: accuracy, or perplexity for text.
        recovery: the metric of recovery.
        cells: the vanilla one first, then by defence, λ, β (largest first).
        by: whose recovery it is: the worst case's, or one attack's.
    """

    title: str
    about: FoundRun
    utility: str
    recovery: str
    cells: tuple[Cell, ...]
    by: str = WORST

    @property
    def is_text(self) -> bool:
        return self.about.is_text

    @property
    def runs(self) -> list[FoundRun]:
        """Its runs, each once."""
        return list({run.name: run for cell in self.cells for run in cell.runs}.values())

    @property
    def vanilla(self) -> Cell | None:
        """The cell without any defence."""
        return next((cell for cell in self.cells if cell.is_vanilla), None)

    def drop(self, cell: Cell) -> float:
        """What a cell loses against vanilla: accuracy in absolute terms, perplexity relative to vanilla's."""
        assert self.vanilla is not None
        ours, theirs = cell.utility.mean, self.vanilla.utility.mean
        return ours / theirs - 1 if self.utility == "perplexity" else theirs - ours


def settings_of(runs: Iterable[FoundRun], metric: str | None = None) -> list[Setting]:
    """The runs by what they can be compared within: same data, network, cut and training; defences and seeds differ.

    Args:
        runs: in any order.
        metric: of recovery, where the usual one (SSIM for images, similarity for text, cosine else) is not wanted;
            runs that were not measured by it keep the usual one.
    """
    groups: dict[str, list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        groups.setdefault(json.dumps(shared(run), sort_keys=True, default=str), []).append(run)
    return [
        setting_of(title, group, metric if metric and is_measured(group, metric) else metric_for(group[0]))
        for title, group in zip(titles_of([group[0] for group in groups.values()]), groups.values(), strict=True)
    ]


def shared(run: FoundRun) -> dict[str, Any]:
    """What all runs of a setting have in common."""
    return {name: value for name, value in without_defence(run.results).items() if name != "seed"}


def is_measured(runs: Iterable[FoundRun], metric: str) -> bool:
    """Whether any of these runs was scored by a metric."""
    return any(metric in run.results["worst_case"] for run in runs)


def titles_of(runs: Sequence[FoundRun]) -> list[str]:
    """A title for each run's setting; where two would be alike, with what they differ in."""
    titles = [title_of(run) for run in runs]
    found = []
    for title, run in zip(titles, runs, strict=True):
        alike = [shared(other) for other, theirs in zip(runs, titles, strict=True) if theirs == title]
        ours = shared(run)
        apart = [name for name in sorted(ours) if any(other.get(name) != ours[name] for other in alike)]
        found.append(", ".join([title, *(in_title(run, name, ours[name]) for name in apart)]))
    return found


def in_title(run: FoundRun, name: str, value: Any) -> str:
    """One thing that tells a setting from another: `epochs 20`."""
    if name != "data":
        return f"{name.replace('_', ' ')} {value}"
    data = run.results["data"]
    return f"{data['train']:,} to train on, {data['test']:,} to test on"


def title_of(run: FoundRun) -> str:
    """`mnist, lenet cut after conv2`."""
    data, model = run.results["data"], run.results["model"]
    head = f", {model['head']} head" if model.get("head", "default") != "default" else ""
    return f"{data['name']}, {model['name']} cut after {model['cut']}{head}"


def metric_for(run: FoundRun) -> str:
    """The usual metric of recovery."""
    return "similarity" if run.is_text else "ssim" if len(run.results["data"]["shape"]) == 3 else "mcs"


def setting_of(title: str, runs: Sequence[FoundRun], metric: str) -> Setting:
    """The cells of one setting."""
    utility = "perplexity" if runs[0].is_text else "accuracy"
    measured: dict[tuple[str, str], list[tuple[FoundRun, Measurement]]] = {}
    for run in runs:
        defence = json.dumps({**OLDER, **run.results["defence"]}, sort_keys=True)
        for channel, measurement in measurements(run, utility, metric):
            measured.setdefault((defence, channel), []).append((run, measurement))
    cells = []
    for (_, channel), rows in measured.items():
        made, found = [run for run, _ in rows], [measurement for _, measurement in rows]
        attacked = {each.attacks for each in found}
        # a mean over some seeds only would be of other networks than the utility beside it, and one over unequal
        # attacks of nothing
        recovery, halves = over_seeds(found) if len(attacked) == 1 else (None, None)
        useful = Spread.of([each.utility for each in found])
        attacks = frozenset.intersection(*attacked)
        cells.append(Cell(made[0].results["defence"], channel, tuple(made), useful, recovery, attacks, halves))
    return Setting(title, runs[0], utility, metric, tuple(sorted(cells, key=in_order)))


def in_order(cell: Cell) -> tuple[Any, ...]:
    """Vanilla first, then by defence, λ, β from large to small, exact states before channels."""
    defence = cell.defence
    return (not is_vanilla(defence), defence["name"], defence["lambda"], -defence["beta"], cell.channel, cell.label)


@dataclass(frozen=True)
class Measurement:
    """What one run was measured at.

    Args:
        utility: accuracy, or perplexity.
        recovery: the mean over the attacked inputs; None where it was not measured.
        scores: of each input, in the order of the test set; empty where results keep none.
        attacks: what the recovery is the worst case over.
    """

    utility: float
    recovery: float | None
    scores: tuple[float, ...]
    attacks: frozenset[str]


def measurements(run: FoundRun, utility: str, metric: str) -> Iterable[tuple[str, Measurement]]:
    """What a run was measured at: as it is, and for text behind each channel (attacked by hybrid alone)."""
    results = run.results
    worst = results["worst_case"]
    whole = worst[metric]["mean"] if metric in worst else None
    _, scores = worst_scores({key: each for key, each in results["attacks"].items() if "scores" in each})
    # an attack that was stopped on its way counts in the worst case, and not as one that was gone through
    through = frozenset(key for key in worst.get("attacks", []) if not results["attacks"][key].get("stopped"))
    yield "", Measurement(results["utility"][utility], whole, tuple(scores.get(metric, ())), through)
    hybrid = results["attacks"].get("text/hybrid", {})
    for channel, behind in hybrid.get("channels", {}).items():
        recovered = behind[metric]["mean"] if metric in behind else None
        each = tuple(behind.get("scores", {}).get(metric, ()))
        yield channel, Measurement(behind[utility], recovered, each, frozenset(["text/hybrid"]))


def over_seeds(found: Sequence[Measurement]) -> tuple[Spread | None, Halves | None]:
    """Recovery over seeds, on all inputs and on either half of them."""
    values = [each.recovery for each in found if each.recovery is not None]
    if len(values) < len(found):
        return None, None
    fewest = min(len(each.scores) for each in found)
    if fewest < LEAST_TO_HALVE:
        return Spread.of(values), None
    # every second one: both halves come from all over the test set, and are the same inputs in all runs
    choice, report = (Spread.of([statistics.fmean(each.scores[first::2]) for each in found]) for first in (0, 1))
    return Spread.of(values), Halves(choice, report, fewest)


def by_attack(setting: Setting, attack: str, metric: str | None = None) -> Setting:
    """The same setting with recovery by one attack instead of the worst case; `prototype` is the floor."""
    metric = metric or setting.recovery
    cells = []
    for cell in setting.cells:
        records = [run.results["attacks"].get(attack, {}) for run in cell.runs]
        found = [
            Measurement(0.0, each[metric]["mean"], tuple(each.get("scores", {}).get(metric, ())), frozenset([attack]))
            for each in records
            if metric in each
        ]
        whole = len(found) == len(cell.runs) and not cell.channel
        recovery, halves = over_seeds(found) if whole else (None, None)
        cells.append(dataclasses.replace(cell, recovery=recovery, halves=halves, attacks=frozenset([attack])))
    return dataclasses.replace(setting, recovery=metric, cells=tuple(cells), by=attack)


def attacks_of(setting: Setting) -> list[str]:
    """Every attack that any of its runs went through, without the floor."""
    return sorted({key for run in setting.runs for key in run.results["attacks"]} - {FLOOR})
