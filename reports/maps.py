"""The charts of a setting: maps or curves of each family along its axes, utility against recovery, monotone claims."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sweetspot.metrics.summary import FLOOR
from sweetspot.reports.axes import Axis
from sweetspot.reports.cells import NAMES, Cell, Setting, attacks_of, by_attack, metric_for, records_of
from sweetspot.reports.charts import ColourBar, Square, heat_map, width_of
from sweetspot.reports.criteria import tolerated
from sweetspot.reports.curves import curve
from sweetspot.reports.fairness import equally_attacked
from sweetspot.reports.families import Family, Style, families_of, keys_of_failed, style_of, styles_of
from sweetspot.reports.grades import seen_words
from sweetspot.reports.leak import NO_PICTURE
from sweetspot.reports.monotone import monotone_claims
from sweetspot.reports.plots import Chain, Level, Point, trade_off
from sweetspot.reports.records import WORST_CASE, pooled
from sweetspot.reports.sweet_spot import Verdict, cell_figures, pareto_front, useful
from sweetspot.reports.tables import describe_defence

OF_PAPER = ("whitebox/paper", "whitebox/adaptive")  # the attacks that the paper's claims are about
SPARED = "not by every attack"
MATTERS = 2.0  # percentage points below vanilla that the colours span at least
COLLAPSED = 10.0  # percentage points below vanilla; how far further a cell fell is no matter of colour


@dataclass(frozen=True)
class Chart:
    """A measure with its heading: one map or curve, or one for each place along the other axes.

    Args:
        title: what it is of.
        note: which way is better.
        pictures: with what stands above each.
        bar: the colours that all of them share; empty where each has its own.
    """

    title: str
    note: str
    pictures: tuple[tuple[str, Markup], ...]
    bar: Markup = Markup("")


@dataclass(frozen=True)
class View:
    """Maps over one pair of axes: its number, what it is called, the maps."""

    pair: str
    label: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class FamilyCharts:
    """What is drawn of one family.

    Args:
        name: of the family.
        along: its axes, in words.
        charts: what is seen at first.
        views: where there is a choice of axes, the maps of each pair, without their squares: they are moved there.
    """

    name: str
    along: str
    charts: tuple[Chart, ...]
    views: tuple[View, ...] = ()


@dataclass(frozen=True)
class Measure:
    """What a chart is of.

    Args:
        title: of the chart.
        note: whether much of it is good.
        value: a cell's.
        digits: it is written with.
        deviation: over seeds, of a cell.
        percent: whether it is written as a percentage.
        of_utility: whether it is what a cell is useful by.
        is_headline: whether it is what the verdict goes by.
        limits: the ends of its colours; None: those of the values.
    """

    title: str
    note: str
    value: Callable[[Cell], float | None]
    digits: int
    deviation: Callable[[Cell], float] = lambda cell: 0.0
    percent: bool = False
    of_utility: bool = False
    is_headline: bool = False
    limits: tuple[float, float] | None = None

    def written(self, value: float) -> str:
        return f"{100 * value:.2f}" if self.percent else f"{value:.{self.digits}f}"

    def shown(self, cell: Cell | None) -> float | None:
        """A cell's value in the unit that is drawn."""
        value = self.value(cell) if cell is not None else None
        return 100 * value if value is not None and self.percent else value


def charts_of(setting: Setting, ids: dict[int, str], failed: Sequence[dict[str, Any]]) -> list[FamilyCharts]:
    """For each family that has axes: curves along one, maps over two, a choice of two among more.

    Args:
        setting: the cells.
        ids: of the cells, by `id(cell)`.
        failed: what failed in this setting.
    """
    found, styles = [], styles_of(setting)
    for number, family in enumerate(families_of(setting, failed)):
        if not family.axes:
            continue
        along = ", ".join(axis.label for axis in family.axes)
        measured = measures(setting, family.cells)
        if len(family.axes) == 1 or family.is_scattered:
            curves = [
                drawn_along(setting, measure, family, axis, ids, styles[family.name])
                for axis in family.axes
                for measure in basic(measured)
            ]
            found.append(FamilyCharts(family.name, along, tuple(curves)))
        elif len(family.axes) == 2:
            maps = [drawn_over(setting, measure, family, (0, 1), ids, "") for measure in measured]
            found.append(FamilyCharts(family.name, along, tuple(maps)))
        else:
            found.append(with_choice(setting, family, basic(measured), ids, along, f"m{number}"))
    return found


def with_choice(
    setting: Setting, family: Family, measured: Sequence[Measure], ids: dict[int, str], along: str, name: str
) -> FamilyCharts:
    """Maps over two axes, small multiples over the others, and the same for every other two."""
    pairs = list(itertools.combinations(range(len(family.axes)), 2))
    views = []
    for pair in pairs:
        label = " and ".join(family.axes[axis].label for axis in pair)
        charts = [
            drawn_over(setting, measure, family, pair, ids, f"{name}-{place}", is_empty=True)
            for place, measure in enumerate(measured)
        ]
        views.append(View(f"{pair[0]}-{pair[1]}", label, tuple(charts)))
    first = [
        drawn_over(setting, measure, family, pairs[0], ids, f"{name}-{place}") for place, measure in enumerate(measured)
    ]
    return FamilyCharts(family.name, along, tuple(first), tuple(views))


def basic(measured: Sequence[Measure]) -> list[Measure]:
    """The two that matter most, where every measure would be too much: utility, and what came back at worst."""
    return [each for each in measured if each.of_utility or each.is_headline]


def measures(setting: Setting, cells: Sequence[Cell]) -> list[Measure]:
    """What there are charts of: utility, distance, the worst case, and the paper's own attacks."""
    exact = setting.utility == "perplexity"
    found = [
        Measure("Perplexity" if exact else "Accuracy, %", f"{'lower' if exact else 'higher'} is better",
                lambda cell: cell.utility.mean, 1 if exact else 2, lambda cell: cell.utility.std, not exact, True),
        Measure("Mean pairwise distance", "of representations at the cut",
                lambda cell: statistics.fmean(run.results["separability"]["mean"] for run in cell.runs), 3),
    ]  # fmt: skip
    score = metric_for(setting.about)
    usual = ("em", "similarity") if setting.is_text else ("ssim", "psim") if score == "ssim" else (score,)
    for metric in dict.fromkeys([setting.recovery, *usual]):
        measure = recovery_measure(f"Worst-case {NAMES[metric]}", WORST_CASE, metric, compared(setting))
        found.append(dataclasses.replace(measure, is_headline=metric == setting.recovery))
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

    def deviation(cell: Cell) -> float:
        return cell.recovery.std if cell.recovery is not None and attack == WORST_CASE else 0.0

    # differences that do not matter have no colours; PSNR is in decibels, cosine similarity may be negative
    limits = None if metric in ("psnr", "mcs") else (0.0, 1.0)  # of a leak below 0 the label alone says more
    return Measure(title, "lower is better", value, 3, deviation, limits=limits)


def drawn_over(
    setting: Setting,
    measure: Measure,
    family: Family,
    pair: tuple[int, int],
    ids: dict[int, str],
    name: str,
    is_empty: bool = False,
) -> Chart:
    """A map over two axes, or one for each place along the others.

    Args:
        setting: the cells.
        measure: what the maps are of.
        family: whose maps they are.
        pair: which of its axes are rows and columns.
        ids: of the cells.
        name: before the names of squares that may move.
        is_empty: whether squares are left out.
    """
    rows, columns = (family.axes[axis] for axis in pair)
    others = [axis for place, axis in enumerate(family.axes) if place not in pair]
    wide = width_of([*family.axes]) if others else 0
    held = squares_of(setting, measure, family, ids, name)
    bar = bar_of(setting, measure, family)
    title = f"{measure.title} over {rows.label} and {columns.label}"
    pictures = []
    for place in sorted({place_along(others, keys) for keys, _ in held}):
        here = [
            Square(rows.values.index(keys[rows.key]), columns.values.index(keys[columns.key]), *square)
            for keys, square in held
            if place_along(others, keys) == place
        ]
        caption = ", ".join(f"{axis.label} {axis.texts[at]}" for axis, at in zip(others, place, strict=True))
        pictures.append((caption, heat_map(
            ", ".join(filter(None, [title, caption])), here, rows, columns, bar, bool(others), is_empty, wide,
        )))  # fmt: skip
    return Chart(measure.title, measure.note, tuple(pictures), bar.alone() if others else Markup(""))


def place_along(axes: Sequence[Axis], keys: dict[str, Any]) -> tuple[int, ...]:
    """Where a cell lies along some axes."""
    return tuple(axis.values.index(keys[axis.key]) for axis in axes)


def squares_of(
    setting: Setting, measure: Measure, family: Family, ids: dict[int, str], name: str
) -> list[tuple[dict[str, Any], tuple[float | None, str, str, str, str]]]:
    """Where each square lies, and what it holds: a number, a dash where nothing was attacked, a cross for a failure."""
    found, taken = [], set()
    for cell in family.cells:
        value = measure.shown(cell)
        keys = {axis.key: axis.values[0] for axis in family.axes} | cell.keys  # an older record may lack one
        raw = measure.value(cell)
        text = measure.written(raw) if raw is not None else "–"
        why = cell.gap if cell.recovery is None else SPARED
        tip = f"{measure.title}: {text if raw is not None else why}\n{cell_figures(setting, cell)}"
        taken.add(place_along(family.axes, keys))
        found.append((keys, (value, text, tip, ids[id(cell)], name and f"{name}-{ids[id(cell)]}")))
    for number, each in enumerate(family.failed):
        keys = {axis.key: axis.values[0] for axis in family.axes} | keys_of_failed(setting, each)
        if place_along(family.axes, keys) not in taken:
            taken.add(place_along(family.axes, keys))
            tip = f"{describe_defence(each['defence'])} failed: {each['error']}"
            found.append((keys, (None, "✕", tip, "", name and f"{name}-x{number}")))
    return found


def bar_of(setting: Setting, measure: Measure, family: Family) -> ColourBar:
    """The colours of a family's maps."""
    values = [value for value in map(measure.shown, family.cells) if value is not None]
    against = {measure.shown(setting.vanilla_of(cell)) for cell in family.cells}
    vanilla = against.pop() if len(against) == 1 else None  # at several cuts there are several
    limits = measure.limits
    if vanilla is not None and measure.of_utility:
        limits = limits_of_utility(vanilla, values, measure.percent)
    return ColourBar.of(values, vanilla, measure.digits, limits)


def drawn_along(
    setting: Setting, measure: Measure, family: Family, axis: Axis, ids: dict[int, str], style: Style
) -> Chart:
    """A measure along one axis: a curve where it is the only one, points where cells differ in more."""
    points, values, vanilla = [], [], {}
    scale = 100 if measure.percent else 1
    for cell in family.cells:
        value, keys = measure.shown(cell), cell.keys
        if value is None or axis.key not in keys:
            continue
        base = measure.shown(setting.vanilla_of(cell))
        if base is not None:
            vanilla[keys[axis.key]] = base
        tip = f"{measure.title}: {measure.written(value / scale)}\n{cell_figures(setting, cell)}"
        spread = scale * measure.deviation(cell) if cell.utility.count > 1 else 0.0
        points.append(Point(0.0, value, 0.0, spread, ids[id(cell)], cell.label, tip, style.kind, style.shape))
        values.append(keys[axis.key])
    if len(family.axes) > 1 and len(set(vanilla.values())) > 1:
        vanilla = {}  # of several cuts, and so none along this axis
    svg = curve(measure.title, points, values, axis, list(vanilla.items()), lambda tick: f"{round(tick, 6):g}",
                len(family.axes) == 1)  # fmt: skip
    return Chart(f"{measure.title} along {axis.label}", measure.note, (("", svg),))


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


def plot_of(setting: Setting, verdict: Verdict, ids: dict[int, str], max_drop: float | None) -> Markup:
    """Utility against recovery of every attacked cell; empty where none was."""
    cells = [cell for cell in setting.cells if cell.recovery is not None]
    if not cells:
        return Markup("")
    named = {id(cell) for cell in verdict.front} | {id(verdict.cell), id(setting.vanilla)}
    whole, points = compared(setting), []
    styles = styles_of(setting)
    for cell in cells:
        assert cell.recovery is not None
        many = cell.utility.count > 1
        style = style_of(cell, styles)
        tips = [cell_figures(setting, cell), *filter(None, [", ".join(seen_words(cell))])]
        tips += [SPARED] * (id(cell) not in whole)
        point = Point(
            cell.utility.mean, cell.recovery.mean, many * cell.utility.std, many * cell.recovery.std,
            ids[id(cell)], cell.label, "\n".join(tips), style.kind, style.shape,
            cell is verdict.cell and verdict.found, id(cell) in named, id(cell) not in whole,
        )  # fmt: skip
        points.append(point)
    falling = setting.utility == "perplexity"
    enough = None
    if setting.vanilla is not None:
        base, lost = setting.vanilla.utility.mean, tolerated(setting.utility, max_drop)
        enough = base * (1 + lost) if falling else base - lost
    x_name = "perplexity" if falling else "accuracy"
    y_name = f"worst-case {NAMES[setting.recovery]}"
    return trade_off(
        points,
        places_of(verdict.front),
        x_name,
        y_name,
        falling,
        enough,
        levels_of(setting),
        chains_of(setting, styles),
    )


def levels_of(setting: Setting) -> list[Level]:
    """Lines across the plot: what the floor alone gives away, and how much beyond it still counts as nothing."""
    if setting.by_leak:
        what = "text" if setting.is_text else "picture"
        nothing = Level(NO_PICTURE, f"no {what} up to {NO_PICTURE:g}", "limit")
        return [nothing, Level(0.0, f"{setting.floor} alone", "floor")]
    levels = []
    floor = by_attack(setting, FLOOR).cells
    known = [cell for cell in floor if cell.recovery is not None]
    if known:
        cell = next((each for each in known if each.is_vanilla), known[0])
        assert cell.recovery is not None
        levels.append(Level(cell.recovery.mean, f"{FLOOR}: what the label alone gives away", "floor"))
    return levels


def chains_of(setting: Setting, styles: dict[str, Style]) -> list[Chain]:
    """The front of each family, where there are several, and from each network to the channels behind it."""
    whole = compared(setting)
    chains = []
    for family in families_of(setting) if len(styles) > 1 else []:
        front = pareto_front([each for each in family.cells if id(each) in whole], setting.utility == "perplexity")
        chains.append(Chain(f"family {styles[family.name].kind}", places_of(front)))
    networks: dict[str, list[Cell]] = {}
    for cell in setting.cells:
        if cell.recovery is not None:
            networks.setdefault(json.dumps([cell.defence, cell.cut], sort_keys=True), []).append(cell)
    chains += [Chain("chain", sorted(places_of(cells))) for cells in networks.values() if cells[-1].channel]
    return [chain for chain in chains if len(chain.points) > 1]


def places_of(cells: Iterable[Cell]) -> list[tuple[float, float]]:
    """The utility and the recovery of attacked cells."""
    return [(cell.utility.mean, cell.recovery.mean) for cell in cells if cell.recovery is not None]


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
    whole = {WORST_CASE: setting, **{attack: by_attack(setting, attack) for attack in attacks_of(setting)}}
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
