"""The charts of a setting: its heat maps over (λ, β), its plot of utility against recovery, its monotone claims."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from metrics.summary import FLOOR
from reports.cells import NAMES, RECOGNISABLE, Cell, Setting, attacks_of, by_attack
from reports.charts import Square, heat_map
from reports.exports import pooled, records_of
from reports.fairness import equally_attacked
from reports.monotone import monotone_claims
from reports.plots import Level, Point, trade_off
from reports.sweet_spot import Verdict, in_words, useful
from reports.tables import describe_defence
from runs.matching import without_defence
from runs.record import is_number

OF_PAPER = ("whitebox/paper", "whitebox/adaptive")  # the attacks that the paper's claims are about
WORST = "worst case"
SPARED = "not by every attack"
MATTERS = 2.0  # percentage points below vanilla that the colours span at least
COLLAPSED = 10.0  # percentage points below vanilla; how far further a cell fell is no matter of colour


@dataclass(frozen=True)
class Map:
    """A heat map with its heading."""

    title: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Measure:
    """What a map is of: its title, whether much of it is good, a cell's value, and how that is written.

    `limits` are the ends of its colours; None: those of the values.
    """

    title: str
    note: str
    value: Callable[[Cell], float | None]
    digits: int
    percent: bool = False
    of_utility: bool = False
    limits: tuple[float, float] | None = None

    def written(self, value: float) -> str:
        return f"{100 * value:.2f}" if self.percent else f"{value:.{self.digits}f}"


def maps_of(setting: Setting, ids: dict[int, str], failed: Sequence[dict[str, Any]]) -> list[Map]:
    """A map for each measure, for each variant of MixCon that the setting has.

    Args:
        setting: the cells.
        ids: of the cells, by `id(cell)`.
        failed: what failed in this setting.
    """
    variants: dict[str, list[Cell]] = {}
    for cell in setting.cells:
        if cell.defence["name"] == "mixcon" and not cell.channel:
            variants.setdefault(variant_of(cell.defence), []).append(cell)
    maps = []
    for number, (variant, cells) in enumerate(variants.items()):
        theirs = [
            each for each in failed if variant_of(each["defence"]) == variant
            or (number == 0 and variant_of(each["defence"]) not in variants)
        ]  # fmt: skip
        told = f" · {told_apart(variant, list(variants))}" if len(variants) > 1 else ""
        for measure in measures(setting, cells):
            svg = drawn(setting, measure, cells, ids, theirs)
            maps.append(Map(measure.title + told, measure.note, svg))
    return maps


def variant_of(defence: dict[str, Any]) -> str:
    """A defence without λ and β."""
    return json.dumps({k: v for k, v in defence.items() if k not in ("lambda", "beta")}, sort_keys=True)


def told_apart(variant: str, variants: Sequence[str]) -> str:
    """What a variant has that another has not."""
    every = [set(map(str, json.loads(each).items())) for each in variants]
    shared = set.intersection(*every)
    return ", ".join(f"{k} {v}" for k, v in json.loads(variant).items() if str((k, v)) not in shared)


def measures(setting: Setting, cells: Sequence[Cell]) -> list[Measure]:
    """What there are maps of: utility, distance, the worst case, and the paper's own attacks."""
    exact = setting.utility == "perplexity"
    found = [
        Measure("Perplexity" if exact else "Accuracy, %", f"{'lower' if exact else 'higher'} is better",
                lambda cell: cell.utility.mean, 1 if exact else 2, not exact, True),
        Measure("Mean pairwise distance", "of representations at the cut",
                lambda cell: statistics.fmean(run.results["separability"]["mean"] for run in cell.runs), 3),
    ]  # fmt: skip
    usual = ("em", "similarity") if setting.is_text else ("ssim", "psim") if setting.recovery != "mcs" else ()
    for metric in dict.fromkeys([setting.recovery, *usual]):
        found.append(recovery_measure(f"Worst-case {NAMES[metric]}", WORST, metric, compared(setting)))
    for attack in OF_PAPER:
        every = {id(cell) for cell in setting.cells}
        found.append(recovery_measure(f"{NAMES[setting.recovery]} of {attack}", attack, setting.recovery, every))
    return [each for each in found if any(each.value(cell) is not None for cell in cells)]


def compared(setting: Setting) -> set[int]:
    """The cells, by `id(cell)`, that went through every attack: a worst case over fewer says less."""
    attacked = [cell for cell in setting.cells if cell.recovery is not None]
    return {id(cell) for cell in equally_attacked(attacked)[0]} if attacked else set()


def recovery_measure(title: str, attack: str, metric: str, cells: set[int]) -> Measure:
    """A measure of what came back of some cells, by `id(cell)`."""

    def value(cell: Cell) -> float | None:
        found = pooled(metric, records_of(cell, attack)) if id(cell) in cells else None
        return found["mean"] if found is not None else None

    # differences that do not matter have no colours; PSNR is in decibels, cosine similarity may be negative
    limits = None if metric in ("psnr", "mcs") else (0.0, 1.0)
    return Measure(title, "lower is better", value, 3, limits=limits)


def drawn(
    setting: Setting, measure: Measure, cells: Sequence[Cell], ids: dict[int, str], failed: Sequence[dict[str, Any]]
) -> Markup:
    """One map: a number where there is one, a dash where nothing was attacked, a cross where the run failed."""
    squares = []
    for cell in cells:
        value = measure.value(cell)
        said = measure.written(value) if value is not None else "–"
        why = cell.gap if cell.recovery is None else SPARED
        tip = f"{measure.title}: {said if value is not None else why}\n{in_words(setting, cell)}"
        place = float(cell.defence["lambda"]), float(cell.defence["beta"])
        in_bar = 100 * value if value is not None and measure.percent else value
        squares.append(Square(*place, in_bar, said, tip, ids[id(cell)]))
    taken = {(square.row, square.column) for square in squares}
    for each in failed:
        place = float(each["defence"]["lambda"]), float(each["defence"]["beta"])
        if place not in taken:
            taken.add(place)
            squares.append(Square(*place, None, "✕", f"{describe_defence(each['defence'])} failed: {each['error']}"))
    vanilla = measure.value(setting.vanilla) if setting.vanilla else None
    shown = 100 * vanilla if vanilla is not None and measure.percent else vanilla
    limits = measure.limits
    if shown is not None and measure.of_utility:
        limits = limits_of_utility(shown, [each.value for each in squares if each.value is not None], measure.percent)
    return heat_map(f"{measure.title} over λ and β", squares, shown, measure.digits, limits)


def limits_of_utility(vanilla: float, values: Sequence[float], percent: bool) -> tuple[float, float]:
    """The ends of the colours: differences of little use stay small, and one collapsed cell leaves the others theirs.

    Example:
        >>> limits_of_utility(99.0, [98.9, 98.7], True), limits_of_utility(99.0, [99.1, 10.0], True)
        ((97.0, 99.0), (89.0, 99.1))
    """
    low, high = min([vanilla, *values]), max([vanilla, *values])
    if percent:
        return max(vanilla - COLLAPSED, min(vanilla - MATTERS, low)), high
    return low, min(3 * vanilla, max(1.2 * vanilla, high))


def failures_of(setting: Setting, failed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The failed MixCon cells that would have belonged to a setting."""
    return [each for each in failed if is_placed(each["defence"]) and same_setting(setting, each)]


def is_placed(defence: Any) -> bool:
    """Whether a failed cell says where on a map it would be."""
    if not isinstance(defence, dict) or defence.get("name") != "mixcon":
        return False
    return all(is_number(defence.get(name)) for name in ("lambda", "beta"))


def same_setting(setting: Setting, failure: dict[str, Any]) -> bool:
    """Whether a failed run differs from a setting's in nothing but its defence and seed."""
    ours = setting.about.results
    try:
        one, other = (without_defence(each) for each in (ours, failure))
        return {**one, "seed": ""} == {**other, "seed": ""}
    except (KeyError, TypeError, AttributeError):  # it failed before its data were known
        names, theirs = ("dataset", "network", "cut", "head", "epochs", "batch_size", "lr"), failure["config"]
        return isinstance(theirs, dict) and all(theirs.get(name) == ours["config"].get(name) for name in names)


def plot_of(setting: Setting, verdict: Verdict, ids: dict[int, str], max_drop: float) -> Markup:
    """Utility against recovery of every attacked cell; empty where none was."""
    cells = [cell for cell in setting.cells if cell.recovery is not None]
    if not cells:
        return Markup("")
    named = {id(cell) for cell in verdict.front} | {id(verdict.cell), id(setting.vanilla)}
    whole, points = compared(setting), []
    for cell in cells:
        assert cell.recovery is not None
        many = cell.utility.count > 1
        kind = "other" if cell.channel else str(cell.defence["name"])
        point = Point(
            cell.utility.mean, cell.recovery.mean, many * cell.utility.std, many * cell.recovery.std,
            ids[id(cell)], cell.label, in_words(setting, cell) + f"\n{SPARED}" * (id(cell) not in whole), kind,
            cell is verdict.cell and verdict.found, id(cell) in named, id(cell) not in whole,
        )  # fmt: skip
        points.append(point)
    falling = setting.utility == "perplexity"
    enough = None
    if setting.vanilla is not None:
        base = setting.vanilla.utility.mean
        enough = base * (1 + max_drop) if falling else base - max_drop
    front = [(cell.utility.mean, cell.recovery.mean) for cell in verdict.front if cell.recovery]
    x_name = "perplexity" if falling else "accuracy"
    y_name = f"worst-case {NAMES[setting.recovery]}"
    return trade_off(points, front, x_name, y_name, falling, enough, levels_of(setting), chains_of(setting))


def levels_of(setting: Setting) -> list[Level]:
    """Lines across the plot: from where on inputs are recognisable, and what the label alone gives away."""
    levels = []
    if setting.recovery in RECOGNISABLE:
        line = RECOGNISABLE[setting.recovery]
        levels.append(Level(line, f"recognisable from {line:g} on", "recognisable"))
    floor = by_attack(setting, FLOOR).cells
    known = [cell for cell in floor if cell.recovery is not None]
    if known:
        cell = next((each for each in known if each.is_vanilla), known[0])
        assert cell.recovery is not None
        levels.append(Level(cell.recovery.mean, f"{FLOOR}: what the label alone gives away", "floor"))
    return levels


def chains_of(setting: Setting) -> list[list[tuple[float, float]]]:
    """For each network of a text setting, its exact states and the channels behind it, in the order of their use."""
    chains: dict[str, list[tuple[float, float]]] = {}
    for cell in setting.cells:
        if cell.recovery is not None:
            key = json.dumps(cell.defence, sort_keys=True)
            chains.setdefault(key, []).append((cell.utility.mean, cell.recovery.mean))
    return [sorted(chain) for chain in chains.values() if len(chain) > 1]


@dataclass(frozen=True)
class ClaimRow:
    """How often the two claims hold for one attack: `12 of 15`, the mean change, and the pairs that break it."""

    attack: str
    figures: tuple[tuple[str, str, str], ...]

    @property
    def is_broken(self) -> bool:
        return any(broken for *_, broken in self.figures)


def claim_rows(setting: Setting) -> tuple[list[str], list[ClaimRow]]:
    """The claims' texts, and a row for the worst case and for each attack."""
    whole = {WORST: setting, **{attack: by_attack(setting, attack) for attack in attacks_of(setting)}}
    found = {attack: monotone_claims(each) for attack, each in whole.items()}
    texts = list(dict.fromkeys(claim.text for claims in found.values() for claim in claims))
    rows = []
    for attack, claims in found.items():
        by_text = {claim.text: claim for claim in claims}
        figures = []
        for text in texts:
            claim = by_text.get(text)
            if claim is None:
                figures.append(("–", "", ""))
                continue
            broken = "; ".join(f"{weak} → {strong}: {change:+.3f}" for weak, strong, change in claim.broken[:8])
            more = f" and {len(claim.broken) - 8} more" if len(claim.broken) > 8 else ""
            share = f"{claim.holds} of {claim.pairs} ({100 * claim.holds / claim.pairs:.0f} %)"
            figures.append((share, f"{claim.change:+.3f}".replace("-", "−"), broken + more))
        if claims:
            rows.append(ClaimRow(attack, tuple(figures)))
    return texts, rows


def useful_of(setting: Setting, cell: Cell) -> str:
    """A cell's utility with its name."""
    return f"{setting.utility} {useful(setting, cell)}"
