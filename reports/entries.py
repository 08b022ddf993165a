"""Entries of a leaderboard: a defence at all strengths that were run, as one record.

An entry is a defence on one network, cut and dataset: a penalty, a bottleneck and releases by name, and of text the
kind of channel behind it. Its figures are the worst-case leak where it costs one and three points of vanilla's
accuracy, or 10, 25 and 50 % of its perplexity.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweetspot.reports.beside import client_share
from sweetspot.reports.cells import metric_for
from sweetspot.reports.criteria import COSTS
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.records import attack_records, channels_of, worst_record
from sweetspot.reports.tables import counted, describe_defence
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.identity import CAME_LATER
from sweetspot.runs.matching import is_vanilla, without_defence

ERRORS = 2  # standard errors that an entry states
OLDER: dict[str, Any] = {"bottleneck": None, "release": []}  # what records of penalties alone leave out


@dataclass(frozen=True)
class Point:
    """A defence at one strength, over its seeds.

    Args:
        runs: one a seed; none where the point was read from a stored entry.
        utility: accuracy, or perplexity; mean over seeds.
        drop: what it loses against vanilla, by the same seeds where both have them; of perplexity relative to it.
        leak: worst case over attacks, mean over inputs and seeds.
        error: of the leak, as an entry states it.
        strength: the defence with its numbers.
        names: of its runs.
    """

    runs: tuple[FoundRun, ...]
    utility: float
    drop: float
    leak: float
    error: float
    strength: str = ""
    names: tuple[str, ...] = ()


Stored = Mapping[str, dict[str, Any]]  # entries by their names


def entries_of(runs: Iterable[FoundRun], stored: Stored | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """An entry for each defence, and a line for each group of runs that has none.

    Args:
        runs: finished ones.
        stored: entries of before; their strengths and vanilla's utility count where these runs have none of their own.
    """
    stored = stored or {}
    settings: dict[str, list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.name):
        settings.setdefault(as_key(setting_of(run)), []).extend([run, *behind_channels(run)])
    entries, left_out = [], []
    for group in settings.values():
        data, model = group[0].results["data"]["name"], group[0].results["model"]["name"]
        measured = [run for run in group if leak_of(run) is not None]
        base = base_of(group, stored)
        if len(measured) < len(group):
            missing = len(group) - len(measured)
            left_out.append(f"the leak of {counted(missing, 'run')} on {data} with {model} was not measured")
        if measured and base is None:
            left_out.append(f"there is no vanilla run on {data} with {model} to compare with")
        elif measured and base is not None:
            entries += entries_in(measured, base, stored)
    return entries, left_out


@dataclass(frozen=True)
class Base:
    """Vanilla, which defences are compared with.

    Args:
        useful: its utility by seed.
        command: what trains it.
    """

    useful: dict[int, float]
    command: str


def base_of(group: Sequence[FoundRun], stored: Stored) -> Base | None:
    """Vanilla among runs of one setting, or else in a stored entry of this setting; None where there is neither."""
    vanilla = [run for run in group if is_vanilla(run.results["defence"]) and not channel_of(run)]
    if vanilla:
        first = min(vanilla, key=lambda run: run.results["config"]["seed"])
        return Base({run.results["config"]["seed"]: useful(run) for run in vanilla}, commands_of(first.results)[0])
    for run in group:
        results = run.results
        undefended = FoundRun(run.folder, {**results, "defence": {"name": "none"}})
        if before := stored.get(what_it_is(undefended)["name"]):
            utility: float = before["vanilla"]
            return Base(dict.fromkeys(before["seeds"], utility), before["commands"][0])
    return None


def behind_channels(run: FoundRun) -> list[FoundRun]:
    """Of text each channel that a run was attacked behind, as a run: it has a perplexity and a leak of its own."""
    if not run.is_text:
        return []
    results, found = run.results, []
    for channel in channels_of(results):
        worst, records = worst_record(results, channel), attack_records(results, channel)
        useful = next(iter(records.values()))
        changed = {
            "defence": {**results["defence"], "channel": channel},
            "utility": {name: useful[name] for name in results["utility"] if name in useful},
            "worst_case": {"samples": len(worst.get("inputs", [])), **worst},
            "attacks": records,
        }
        found.append(FoundRun(run.folder, {**results, **changed}))
    return [each for each in found if utility_of(each) in each.results["utility"]]


def channel_of(run: FoundRun) -> str:
    """The channel behind a run; empty: there is none."""
    return str(run.results["defence"].get("channel", ""))


def utility_of(run: FoundRun) -> str:
    """What a run is useful by."""
    return "perplexity" if run.is_text else "accuracy"


def useful(run: FoundRun) -> float:
    """How useful a run is."""
    figure: float = run.results["utility"][utility_of(run)]
    return figure


def costs_of(utility: str) -> dict[str, float]:
    """The costs that leaks are compared at, by the names that entries have for them.

    Example:
        >>> costs_of("accuracy"), costs_of("perplexity")
        ({'-1': 0.01, '-3': 0.03}, {'+10': 0.1, '+25': 0.25, '+50': 0.5})
    """
    sign = "+" if utility == "perplexity" else "-"
    return {f"{sign}{100 * cost:g}": cost for cost in COSTS[utility]}


def setting_of(run: FoundRun) -> dict[str, Any]:
    """What runs must share to be compared: all but defence, cut and seed."""
    return {name: value for name, value in without_defence(run.results).items() if name not in ("seed", "cut")}


def as_key(value: Any) -> str:
    """A value as a text that is equal where the value is."""
    return json.dumps(value, sort_keys=True, default=str)


def leak_of(run: FoundRun) -> dict[str, float] | None:
    """The worst-case leak of a run by the usual metric of its data; None where it was not measured."""
    found: dict[str, float] | None = (run.results["worst_case"].get("leak") or {}).get(metric_for(run))
    return found


def entries_in(measured: Sequence[FoundRun], base: Base, stored: Stored) -> list[dict[str, Any]]:
    """The entries of one setting."""
    defences: dict[str, dict[str, list[FoundRun]]] = {}
    for run in measured:
        kind, cut = kind_of(run.results["defence"]), str(run.results["model"]["cut"])
        cells = defences.setdefault(as_key([kind, cut]), {})
        cells.setdefault(as_key({**OLDER, **run.results["defence"]}), []).append(run)
    entries = []
    for cells in defences.values():
        points = [point_of(cell, base.useful) for cell in cells.values()]
        names = {run.name for point in points for run in point.runs if channel_of(run)}
        sent: dict[str, list[FoundRun]] = {}
        for run in measured:
            if run.name in names and not channel_of(run):
                sent.setdefault(as_key(run.results["defence"]), []).append(run)
        entries.append(entry_of(points, base, [point_of(runs, base.useful) for runs in sent.values()], stored))
    return entries


def kind_of(defence: dict[str, Any]) -> list[str]:
    """The parts of a defence by name, without their numbers; a bottleneck's widths are its name.

    Example:
        >>> kind_of({"name": "compress", "bottleneck": "120-16", "release": [{"name": "gaussian", "sigma": 1.0}]})
        ['compress', 'bottleneck 120-16', 'gaussian']
    """
    parts = [defence["name"].rpartition(":")[2]] if defence["name"] != "none" else []
    parts += [f"bottleneck {defence['bottleneck']}"] if defence.get("bottleneck") else []
    parts += [each["name"].rpartition(":")[2] for each in defence.get("release") or []]
    return [*(parts or ["vanilla"]), *defence.get("channel", "").split()[:1]]


def strength_of(run: FoundRun) -> str:
    """A defence with its numbers, and with the channel behind it."""
    return " + ".join([describe_defence(run.results["defence"]), *filter(None, [channel_of(run)])])


def point_of(runs: Sequence[FoundRun], base: dict[int, float]) -> Point:
    """A cell as a point.

    Args:
        runs: its runs, one a seed.
        base: vanilla's utility by seed.
    """
    values = {run.results["config"]["seed"]: useful(run) for run in runs}
    pairs = [(each, base[seed]) for seed, each in values.items() if seed in base]
    ours, theirs = zip(*pairs, strict=True) if pairs else (values.values(), base.values())
    utility, mean, vanilla = (statistics.fmean(each) for each in (values.values(), ours, theirs))
    drop = mean / vanilla - 1 if utility_of(runs[0]) == "perplexity" else vanilla - mean
    leaks = [leak for run in runs if (leak := leak_of(run)) is not None]
    over_inputs = [
        leak["std"] ** 2 / max(1, run.results["worst_case"]["samples"]) for leak, run in zip(leaks, runs, strict=True)
    ]
    error = stated_error([leak["mean"] for leak in leaks], math.sqrt(sum(over_inputs)) / len(leaks))
    leaked = statistics.fmean(leak["mean"] for leak in leaks)
    return Point(tuple(runs), utility, drop, leaked, error, strength_of(runs[0]), tuple(run.name for run in runs))


def points_in(entry: dict[str, Any]) -> list[Point]:
    """The points of a stored entry's frontier."""
    utility = entry.get("utility", "accuracy")
    return [
        Point((), each[utility], each["drop"], each["leak"], each["error"], each["strength"], tuple(each["runs"]))
        for each in entry["frontier"]
    ]


def stated_error(seeds: Sequence[float], of_mean: float) -> float:
    """Two standard errors of a mean over seeds: by what seeds differ in, or by what each of them is uncertain in.

    Example:
        >>> round(stated_error([0.1, 0.3], 0.02), 3), stated_error([0.1], 0.02)
        (0.2, 0.04)
    """
    by_seeds = statistics.stdev(seeds) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
    return ERRORS * max(by_seeds, of_mean)


def frontier(points: Iterable[Point]) -> list[Point]:
    """The points that no other beats in both utility and leak, the most useful first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.drop, point.leak)):
        if not front or point.leak < front[-1].leak:
            front.append(point)
    return front


def leak_at(front: Sequence[Point], drop: float) -> tuple[float, float] | None:
    """The leak, and its error, where a defence costs so much utility, in a straight line between its points.

    None where all of them cost more. Where all cost less, the smallest leak that was measured: nothing says how much
    smaller it would be.

    Args:
        front: the defence's, the most useful first.
        drop: of utility against vanilla.
    """
    within = [point for point in front if point.drop <= drop + 1e-12]
    if not within:
        return None
    last = within[-1]
    if len(within) == len(front):
        return last.leak, last.error
    beyond = front[len(within)]
    share = (drop - last.drop) / (beyond.drop - last.drop)
    return last.leak + share * (beyond.leak - last.leak), max(last.error, beyond.error)


def entry_of(
    points: Sequence[Point], base: Base, starts: Sequence[Point] = (), stored: Stored | None = None
) -> dict[str, Any]:
    """One defence as an entry; what is said of a single strength is said of the least leaking one at the least cost.

    Args:
        points: the defence at each strength.
        base: vanilla.
        starts: of a channel the networks themselves, which its curve begins with.
        stored: entries of before; strengths that are new join those that the same attacks were tried on.
    """
    what = what_it_is(points[0].runs[0])
    before = (stored or {}).get(what["name"])
    if before is not None and attacks_on(points[0].runs) == set(before["attacks"]):
        measured = {point.strength for point in points}
        points = [*points, *(point for point in points_in(before) if point.strength not in measured)]
    front = frontier(points)
    within = [point for point in front if point.drop <= COSTS[what["utility"]][0] + 1e-12]
    best = within[-1] if within else front[0]
    reached = what_it_reaches(what["utility"], front, frontier([*points, *starts]))
    if before is not None and not best.runs:  # what is said of a single strength is what was said of it
        suites = sorted({*before["suite"], *suites_of(run for point in front for run in point.runs)})
        entry = {**before, **reached, "error": {**before["error"], **reached["error"]}, "suite": suites}
    else:
        again = [each for run in best.runs for each in commands_of(run.results)]
        does = what_it_does(what["utility"], best)
        entry = {
            **what_it_is(best.runs[0]),
            "vanilla": statistics.fmean(base.useful.values()),
            **does,
            **reached,
            "error": {**does["error"], **reached["error"]},
            **what_is_beside_it(best.runs),
            "suite": suites_of(run for point in front for run in point.runs),
            "seeds": sorted(run.results["config"]["seed"] for run in best.runs),
            "commands": list(dict.fromkeys([base.command, *again])),
        }
    recorded: dict[str, Any] = rounded(entry)
    return recorded


def attacks_on(runs: Sequence[FoundRun]) -> set[str]:
    """The attacks that all of these runs went through."""
    return set.intersection(*(set(run.results["attacks"]) for run in runs))


def what_it_is(run: FoundRun) -> dict[str, Any]:
    """The part of an entry that says which defence it is, on what, and at which strength."""
    results = run.results
    data, model, defence = results["data"], results["model"], results["defence"]
    # what a run may say since later is left out while it says nothing new: entries of before keep their names
    setting = {name: each for name, each in setting_of(run).items() if each != str(CAME_LATER.get(name, object()))}
    identity = as_key([setting, model["cut"], kind_of(defence), defence["name"]])
    words = "-".join([data["name"], model["name"], str(model["cut"]), *kind_of(defence)])
    readable = re.sub(r"[^\w.-]+", "-", words.replace("bottleneck ", "k"))[:150]
    return {
        "name": f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}",
        "defence": " + ".join(kind_of(defence)),
        "strength": strength_of(run),
        "options": {name: value for name, value in defence.items() if name != "name"},
        "dataset": data["name"],
        "network": model["name"],
        "cut": str(model["cut"]),
        "training": {"inputs": data["train"], "epochs": results["config"]["epochs"]},
        "metric": metric_for(run),
        "utility": utility_of(run),
    }


def what_it_reaches(utility: str, front: Sequence[Point], curve: Sequence[Point]) -> dict[str, Any]:
    """The part of an entry that says what a defence leaks at equal cost, and by which strengths.

    Args:
        utility: what it is useful by.
        front: the defence's.
        curve: the front that leaks at equal cost are read off.
    """
    found = {name: leak_at(curve, cost) for name, cost in costs_of(utility).items()}
    return {
        "leak_at": {name: each[0] if each else None for name, each in found.items()},
        "error": {"leak_at": {name: each[1] if each else None for name, each in found.items()}},
        "frontier": [
            {
                "strength": point.strength, utility: point.utility,
                "drop": point.drop, "leak": point.leak, "error": point.error, "runs": list(point.names),
            }
            for point in front
        ],
    }  # fmt: skip


def what_it_does(utility: str, best: Point) -> dict[str, Any]:
    """The part of an entry that says how useful its single strength is and what it leaks, with the errors of both."""
    uncertain = 0.0  # of perplexity nobody counts right answers
    if utility == "accuracy":
        uncertain = math.sqrt(best.utility * (1 - best.utility) / max(1, best.runs[0].results["data"]["test"]))
    useful_by = stated_error([useful(run) for run in best.runs], uncertain)
    return {utility: best.utility, "leak": best.leak, "error": {utility: useful_by, "leak": best.error}}


def what_is_beside_it(runs: Sequence[FoundRun]) -> dict[str, Any]:
    """The part of an entry that says what the client pays, what is certified, and what each attack got."""
    metric, all_results = metric_for(runs[0]), [run.results for run in runs]
    costs = [results.get("cost") or {} for results in all_results]
    certificates = [results.get("certificate") or {} for results in all_results]
    certified = {name: mean_of(certificates, name) for name in ("nats", "reid_bound", "reid_bayes")}
    certified |= {name: certificates[0].get(name) for name in ("gallery", "queries")}
    return {
        "client_share": {part: client_share(costs[0], part) for part in ("macs", "parameters")},
        "server_gain": mean_of(costs, "server_gain"),
        "certificate": certified if all(certificates) else None,
        "attacks": {
            key: figures_of([results["attacks"][key] for results in all_results], metric)
            for key in sorted(attacks_on(runs))
        },
        "worst_case": figures_of([results["worst_case"] for results in all_results], metric),
    }


def mean_of(records: Sequence[dict[str, Any]], name: str) -> float | None:
    """The mean of a figure over seeds; None where one of them lacks it."""
    known = [value for record in records if (value := record.get(name)) is not None]
    return statistics.fmean(known) if len(known) == len(records) else None


def figures_of(records: Sequence[dict[str, Any]], metric: str) -> dict[str, Any]:
    """An attack over seeds: the score by the usual metric, and the leak by every metric that all seeds have."""
    names = set.intersection(*(set(record.get("leak") or {}) for record in records))
    leaks = {name: over_seeds([record["leak"][name] for record in records]) for name in sorted(names)}
    found: dict[str, Any] = {"leak": leaks}
    if all(metric in record for record in records):
        found[metric] = over_seeds([record[metric] for record in records])
    return found


def over_seeds(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean and most leaked over seeds."""
    return {"mean": statistics.fmean(each["mean"] for each in figures), "worst": max(each["worst"] for each in figures)}


def suites_of(runs: Iterable[FoundRun]) -> list[str]:
    """The attack suites, with their versions, that these runs went through; [] where none is recorded."""
    return sorted({said for run in runs if (said := suite_in_words(run.results.get("suite")))})


def suite_in_words(suite: Any) -> str:
    """A suite as one text, however it is recorded.

    Example:
        >>> suite_in_words({"name": "standard", "version": 1}), suite_in_words("standard-1"), suite_in_words(None)
        ('standard 1', 'standard-1', '')
    """
    if isinstance(suite, dict):
        return " ".join(str(value) for name in ("name", "version") if (value := suite.get(name)) is not None)
    return "" if suite is None else str(suite)


def commands_of(results: dict[str, Any]) -> list[str]:
    """The commands that train and attack a run again: what differs from the defaults, and every option of its parts."""
    config, defence = results["config"], results["defence"]
    arguments: list[str] = []
    for each in dataclasses.fields(TrainConfig):
        name = FLAG_NAMES.get(each.name, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        is_part = each.metadata.get("identity", True) and each.name != "options"
        if is_part and name in config and config[name] not in (default, None):
            arguments += flag_of(name, config[name])
    of_parts = dict.fromkeys(name for part in (defence, *(defence.get("release") or [])) for name in part)
    for name in of_parts:
        if name in config and name not in ("name", "lambda", "bottleneck", "release"):
            arguments += flag_of(name, config[name])
    for name, value in config["trainer"].items():
        arguments += [f"--trainer.{name}", written(value)]
    worst = results["worst_case"]
    attacked = ["python", "evaluate.py", f"checkpoints/{results['name']}", "--samples", str(worst.get("samples", 100))]
    attacked += ["--attacks", *(["standard"] if results.get("suite") else worst.get("attacks", ["standard"]))]
    budgets = {budget for each in results["attacks"].values() if (budget := each.get("settings", {}).get("budget"))}
    attacked += ["--budget", *budgets] if len(budgets) == 1 else []
    attacked += ["--channels", defence["channel"].split()[-1]] if defence.get("channel") else []
    return [shlex.join(["python", "train.py", *arguments, "--attacks", "none"]), shlex.join(attacked)]


def flag_of(name: str, value: Any) -> list[str]:
    """A flag with its values as a command line has them."""
    values = value if isinstance(value, list) else [value]
    return [f"--{name.replace('_', '-')}", *map(written, values)]


def written(value: Any) -> str:
    """A value as a command line has it; of a file anywhere its name alone, for others have it elsewhere.

    Example:
        >>> written(True), written("/data/photos.npz"), written("my/net.py:build")
        ('true', 'photos.npz', 'my/net.py:build')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.rpartition("/")[2] if text.startswith("/") else text


def rounded(value: Any) -> Any:
    """A value with all numbers in it to six digits behind the point: a difference below that means nothing."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded(each) if name != "options" else each for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def disagreements(stored: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """A line for each figure of a stored entry that a new one misses by more than the stored one's stated error."""
    lines = []
    pairs = {
        name: (stored[name], found[name], stored["error"][name]) for name in (stored.get("utility", "accuracy"), "leak")
    }
    for name, value in stored["leak_at"].items():
        pairs[f"leak at {name}"] = (value, found["leak_at"].get(name), stored["error"]["leak_at"][name])
    for name, (theirs, ours, error) in pairs.items():
        if (theirs is None) != (ours is None) or (theirs is not None and abs(theirs - ours) > error):
            lines.append(f"{stored['name']}: {name} is {ours}, and {theirs} ± {error} is stored")
    return lines
