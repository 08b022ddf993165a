"""Runs as cells of grids: what belongs on one map, its seeds taken together, and how its recovery is measured."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sweetspot.lightning_modules.defences import PENALTIES
from sweetspot.metrics.summary import BESIDE
from sweetspot.reports.axes import Axis, axes_of, family_of, keys_of, label_of, order_of, rank, written
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.leak import is_leak, leak_of, with_leaks
from sweetspot.reports.records import WORST_CASE, attack_records, channels_of, strongest, strongest_in, worst_record
from sweetspot.reports.tables import describe_defence
from sweetspot.runs.matching import is_vanilla, without_defence

NAMES = {
    "accuracy": "accuracy", "perplexity": "perplexity", "ssim": "SSIM", "psim": "PSIM", "mcs": "cosine similarity",
    "mse": "MSE", "psnr": "PSNR", "em": "exact match", "token_accuracy": "tokens right", "similarity": "similarity",
    "recognised": "class recognised", "rank": "rank", "reid": "re-identification",
}  # fmt: skip
NAMES |= {leak_of(name): f"{said} leak" for name, said in NAMES.items()}
WORST = "worst-case"  # recovery by the strongest attack on each input
LEAST_TO_HALVE = 20  # inputs; half of fewer would say nothing


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
    """One point of a grid: a defence at a cut, with what may happen to what it releases on the way, over all its seeds.

    Args:
        defence: its record, as in results.json.
        cut: where the network is cut.
        channel: what happens to what is released on its way; empty: nothing.
        label: `MixCon(1, 1e-4)`, with whatever else tells it from the others.
        runs: one a seed.
        utility: accuracy, or perplexity.
        by_seed: the same of each seed.
        recovery: the setting's metric, worst case over attacks, mean over inputs; None where not every seed was
            attacked, and by the same attacks.
        attacks: what the worst case is over.
        halves: the same on either half of the inputs; None where there is no recovery, or too few inputs to halve.
    """

    defence: dict[str, Any]
    cut: str
    channel: str
    label: str
    runs: tuple[FoundRun, ...]
    utility: Spread
    by_seed: dict[int, float]
    recovery: Spread | None
    attacks: frozenset[str]
    halves: Halves | None = None

    @functools.cached_property
    def keys(self) -> dict[str, Any]:
        """Where it lies: the options of its defence by name, its bottleneck, its cut."""
        return keys_of(self.defence, self.cut)

    @functools.cached_property
    def family(self) -> str:
        """The penalty and the releases, whatever their numbers."""
        return family_of(self.defence)

    @property
    def line(self) -> str:
        """Its family on a frontier: behind a channel the network's own, with the kind of the channel."""
        return " + ".join([self.family, *self.channel.split()[:1]])

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds of its runs."""
        return frozenset(self.by_seed)

    @property
    def gap(self) -> str:
        """Why there is no recovery, where there is none."""
        if not any(run.results["attacks"] for run in self.runs):
            return "not attacked"
        alike = len({frozenset(run.results["attacks"]) for run in self.runs}) == 1
        return "attacked, and not measured by it" if alike else "its seeds were not attacked alike"

    @property
    def is_vanilla(self) -> bool:
        """Whether nothing defends it: no penalty, no bottleneck, no release, no channel."""
        return is_vanilla(self.defence) and not self.channel


@dataclass(frozen=True)
class Setting:
    """Cells that differ in nothing but their defence, their cut and their seeds.

    Args:
        title: the data, the network, the cut.
        about: what the runs share, as results.json has it; of the first run.
        utility: accuracy, or perplexity for text.
        recovery: the metric of recovery.
        cells: the vanilla ones first, then by family, λ, β (largest first), and the other axes.
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
    def by_leak(self) -> bool:
        """Whether recovery is leak beyond the floor."""
        return is_leak(self.recovery)

    @property
    def floor(self) -> str:
        """What a leak is beyond: what the label gives away; of text, what is guessed without any states."""
        return "a blind guess" if self.is_text else "the label"

    @property
    def runs(self) -> list[FoundRun]:
        """Its runs, each once."""
        return list({run.name: run for cell in self.cells for run in cell.runs}.values())

    @property
    def vanilla(self) -> Cell | None:
        """The cell without any defence; of several, at several cuts, the first that was attacked."""
        vanilla = [cell for cell in self.cells if cell.is_vanilla]
        return next((cell for cell in vanilla if cell.recovery is not None), vanilla[0] if vanilla else None)

    def vanilla_of(self, cell: Cell) -> Cell | None:
        """What a cell is compared with: vanilla at its own cut, if it was attacked, else the one there is."""
        own = [each for each in self.cells if each.is_vanilla and each.cut == cell.cut and each.recovery is not None]
        return own[0] if own else self.vanilla

    @property
    def axes(self) -> list[Axis]:
        """The keys in which its defended cells differ."""
        return axes_of([cell.keys for cell in self.cells if not cell.is_vanilla])

    def drop(self, cell: Cell) -> float:
        """What a cell loses against vanilla: accuracy in absolute terms, perplexity relative to vanilla's.

        Seeds are compared in pairs where both have them. Vanilla's utility does not depend on the cut.
        """
        vanilla = self.vanilla_of(cell)
        assert vanilla is not None
        theirs = {seed: value for each in self.cells if each.is_vanilla for seed, value in each.by_seed.items()}
        theirs |= vanilla.by_seed
        pairs = [(value, theirs[seed]) for seed, value in cell.by_seed.items() if seed in theirs]
        ours, base = (statistics.fmean(each) for each in zip(*pairs, strict=True)) if pairs else (
            cell.utility.mean, vanilla.utility.mean
        )  # fmt: skip
        return ours / base - 1 if self.utility == "perplexity" else base - ours


def settings_of(runs: Iterable[FoundRun], metric: str | None = None) -> list[Setting]:
    """The runs by what they can be compared within: same data, network and training; defences, cuts and seeds differ.

    Args:
        runs: in any order.
        metric: of recovery, where the usual one (SSIM for images, similarity for text, cosine else) is not wanted;
            runs that were not measured by it keep the usual one. Where label-only attackers were run beside the
            attacks, recovery is its leak beyond the label.
    """
    groups: dict[str, list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        known = FoundRun(run.folder, with_leaks(run.results))
        groups.setdefault(json.dumps(shared(run.results), sort_keys=True, default=str), []).append(known)
    return [
        setting_of(title, group, recovery_for(group, metric))
        for title, group in zip(titles_of(list(groups.values())), groups.values(), strict=True)
    ]


def shared(results: dict[str, Any]) -> dict[str, Any]:
    """What all runs of a setting have in common."""
    return {name: value for name, value in without_defence(results).items() if name not in ("seed", "cut")}


def is_measured(runs: Iterable[FoundRun], metric: str) -> bool:
    """Whether any of these runs was scored by a metric."""
    return any(metric in run.results["worst_case"] for run in runs)


def titles_of(groups: Sequence[Sequence[FoundRun]]) -> list[str]:
    """A title for each setting; where two would be alike, with what they differ in."""
    titles = [title_of(group) for group in groups]
    common = [shared(group[0].results) for group in groups]
    found = []
    for title, group, ours in zip(titles, groups, common, strict=True):
        alike = [other for other, theirs in zip(common, titles, strict=True) if theirs == title]
        apart = [name for name in sorted(ours) if any(other.get(name) != ours[name] for other in alike)]
        found.append(", ".join([title, *(in_title(group[0], name, ours[name]) for name in apart)]))
    return found


def in_title(run: FoundRun, name: str, value: Any) -> str:
    """One thing that tells a setting from another: `epochs 20`."""
    if name != "data":
        return f"{name.replace('_', ' ')} {value}"
    data = run.results["data"]
    return f"{trained_on(run.results)}, {data['test']:,} to test on"


def trained_on(results: dict[str, Any]) -> str:
    """What the training split is: an audit's is the attacker's own."""
    count = f"{results['data']['train']:,}"
    return f"{count} of the attacker's own" if "audit" in results else f"{count} to train on"


def title_of(runs: Sequence[FoundRun]) -> str:
    """`mnist, lenet cut after conv2`; with several cuts all of them."""
    data, model = runs[0].results["data"], runs[0].results["model"]
    head = f", {model['head']} head" if model.get("head", "default") != "default" else ""
    *most, last = cuts_of(runs)
    cuts = f"{', '.join(most)} or {last}" if most else last
    return f"{data['name']}, {model['name']} cut after {cuts}{head}"


def cuts_of(runs: Iterable[FoundRun]) -> list[str]:
    """Where the networks of some runs are cut, in order."""
    cuts = {str(run.results["model"]["cut"]) for run in runs}
    return sorted(cuts, key=lambda cut: order_of("cut", cut))


def recovery_for(runs: Sequence[FoundRun], metric: str | None) -> str:
    """What recovery of some runs is measured by: the leak of a score where it is known, else the score itself."""
    score = metric if metric and is_measured(runs, metric) else metric_for(runs[0])
    return leak_of(score) if is_measured(runs, leak_of(score)) else score


def metric_for(run: FoundRun) -> str:
    """The usual score of recovery."""
    return "similarity" if run.is_text else "ssim" if len(run.results["data"]["shape"]) == 3 else "mcs"


def setting_of(title: str, runs: Sequence[FoundRun], metric: str) -> Setting:
    """The cells of one setting."""
    utility = "perplexity" if runs[0].is_text else "accuracy"
    measured: dict[tuple[Any, ...], list[tuple[FoundRun, Measurement]]] = {}
    for run in runs:
        defence = run.results["defence"]
        place = (defence["name"], family_of(defence), *sorted(place_of(run).items()))
        for channel, measurement in measurements(run, utility, metric):
            measured.setdefault((*place, channel), []).append((run, measurement))
    labels = labels_of([rows[0][0] for rows in measured.values()])
    cells = []
    for ((*_, channel), rows), label in zip(measured.items(), labels, strict=True):
        made, found = [run for run, _ in rows], [measurement for _, measurement in rows]
        attacked = {each.attacks for each in found}
        # a mean over some seeds only would be of other networks than the utility beside it, and one over unequal
        # attacks of nothing
        recovery, halves = over_seeds(found) if len(attacked) == 1 else (None, None)
        about = made[0].results
        cells.append(
            Cell(
                about["defence"], str(about["model"]["cut"]), channel, " + ".join([label, *filter(None, [channel])]),
                tuple(made), Spread.of([each.utility for each in found]),
                {run.results["config"]["seed"]: each.utility for run, each in rows}, recovery,
                frozenset.intersection(*attacked), halves,
            )
        )  # fmt: skip
    return Setting(title, runs[0], utility, metric, tuple(sorted(cells, key=in_order)))


def place_of(run: FoundRun) -> dict[str, Any]:
    """Where a run's cell lies."""
    return keys_of(run.results["defence"], str(run.results["model"]["cut"]))


def labels_of(runs: Sequence[FoundRun]) -> list[str]:
    """What to call the cell of each run: its defence, with the options that a defence's name leaves out and that
    tell it from others of its family, or that are not what they usually are, and its cut where there are several.
    """
    families: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        families.setdefault(family_of(run.results["defence"]), []).append(place_of(run))
    differing = {family: {axis.key for axis in axes_of(places)} for family, places in families.items()}
    several_cuts = len(cuts_of(runs)) > 1
    labels = []
    for run in runs:
        defence, place = run.results["defence"], place_of(run)
        told = differing[family_of(defence)] | unusual_words(defence)
        said = {"lambda", "bottleneck", "cut", "weights", *(["beta"] if defence["name"] == "mixcon" else [])}
        said |= {name for each in defence.get("release") or [] for name in each if name not in ("unit", "ramp")}
        more = [f"{label_of(name)} {written(place[name])}" for name in place if name in told - said]
        cut = f", cut {place['cut']}" if several_cuts else ""
        labels.append(" + ".join([describe_defence(defence), *more]) + cut)
    return labels


def unusual_words(defence: dict[str, Any]) -> set[str]:
    """The options of a penalty that are words, and another than the default."""
    known = PENALTIES.known.get(defence["name"])
    options = known.options if known is not None else {}
    words = {name: each.default for name, each in options.items() if isinstance(each.default, str)}
    return {name for name, default in words.items() if defence.get(name, default) != default}


def in_order(cell: Cell) -> tuple[Any, ...]:
    """Vanilla first, then by family, along its axes from weak to strong, and without a channel before channels."""
    keys = cell.keys
    along = [order_of(name, keys[name]) for name in sorted(keys, key=rank)]
    return (not is_vanilla(cell.defence), cell.family, along, cell.channel, cell.label)


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
    """What a run was measured at: as it is, and behind each channel that it was attacked behind."""
    results = run.results
    for channel in ("", *channels_of(results)):
        worst, records = worst_record(results, channel), attack_records(results, channel)
        whole = worst[metric]["mean"] if metric in worst else None
        # an attack that was stopped on its way counts in the worst case, and not as one that was gone through
        through = frozenset(key for key in worst.get("attacks", []) if not records[key].get("stopped"))
        useful = next(iter(records.values()))[utility] if channel else results["utility"][utility]
        yield channel, Measurement(useful, whole, tuple(strongest({"": worst}, metric)), through)


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


def by_attack(setting: Setting, attack: str) -> Setting:
    """The same setting with recovery by one attack instead of the worst case; `prototype` is a floor."""
    return by_attacks(setting, [attack], attack)


def by_attacks(setting: Setting, attacks: Sequence[str], by: str) -> Setting:
    """The same setting with recovery by the strongest of some attacks on each input.

    Args:
        setting: the cells; one that did not go through all of the attacks has no recovery, nor has one with a channel.
        attacks: by their names.
        by: what the recovery is called.
    """
    metric, cells = setting.recovery, []
    for cell in setting.cells:
        found = []
        for run in cell.runs if not cell.channel else ():
            records = {key: run.results["attacks"].get(key, {}) for key in attacks}
            scores = strongest_in(run.results, records, metric)
            means = [each[metric]["mean"] for each in records.values() if metric in each]
            if len(means) == len(attacks) and (scores or len(means) == 1):
                mean = means[0] if len(means) == 1 else statistics.fmean(scores)
                found.append(Measurement(0.0, mean, tuple(scores), frozenset(attacks)))
        recovery, halves = over_seeds(found) if found and len(found) == len(cell.runs) else (None, None)
        cells.append(dataclasses.replace(cell, recovery=recovery, halves=halves, attacks=frozenset(attacks)))
    return dataclasses.replace(setting, cells=tuple(cells), by=by)


def queries_of(setting: Setting) -> list[int]:
    """The numbers of answers that an attacker averaged on any of its runs."""
    records = [record for run in setting.runs for key, record in run.results["attacks"].items() if key not in BESIDE]
    return sorted({int(count) for record in records for count in record.get("queries") or {}})


def by_queries(setting: Setting, count: int) -> Setting:
    """The same setting with recovery by somebody who may ask for so many answers to one input, and average them.

    A cell whose release is random and that was never asked so often has no recovery, nor has one with a channel.
    """
    metric, cells = setting.recovery, []
    for cell in setting.cells:
        found = [asked_often(run, metric, count) for run in cell.runs if not cell.channel]
        known = [each for each in found if each is not None]
        recovery, halves = over_seeds(known) if known and len(known) == len(cell.runs) else (None, None)
        cells.append(dataclasses.replace(cell, recovery=recovery, halves=halves))
    return dataclasses.replace(setting, cells=tuple(cells), by=f"{count}-answer")


def asked_often(run: FoundRun, metric: str, count: int) -> Measurement | None:
    """What comes back from a run with one answer or with so many, whichever is more; None where it was not tried."""
    attacks = run.results["attacks"]
    single = {key: attacks[key] for key in run.results["worst_case"].get("attacks", []) if key in attacks}
    several = {
        f"{key}, {count} answers": record["queries"][str(count)]
        for key, record in single.items()
        if str(count) in record.get("queries", {})
    }
    if not several and is_random(run.results):
        return None
    scores = strongest_in(run.results, {**single, **several}, metric)
    return Measurement(0.0, statistics.fmean(scores), tuple(scores), frozenset(single)) if scores else None


def is_random(results: dict[str, Any]) -> bool:
    """Whether two answers of a run differ; of runs that do not say so, whether anything happens to what is released."""
    return bool(results.get("random_release", results["defence"].get("release")))


def attacks_of(setting: Setting) -> list[str]:
    """Every attack that reconstructs and that any of its runs went through, without the floors."""
    return sorted({key for run in setting.runs for key in run.results["attacks"]} - {*BESIDE})


def records_of(cell: Cell, attack: str) -> list[dict[str, Any]]:
    """What the runs of a cell have of an attack (`worst case` is one), behind the cell's channel; {} where nothing."""
    if attack == WORST_CASE:
        return [worst_record(run.results, cell.channel) for run in cell.runs]
    return [attack_records(run.results, cell.channel).get(attack, {}) for run in cell.runs]
