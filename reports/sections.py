"""A setting as a section of the page: verdict, pictures, charts, a panel for each cell, a row for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from sweetspot.metrics.summary import FLOORS, GALLERY, mean_std_worst
from sweetspot.progress import duration
from sweetspot.reports.axes import Axis, written
from sweetspot.reports.beside import beside, suite_of, warnings_of
from sweetspot.reports.cells import NAMES, Cell, Setting, attacks_of, by_attack, trained_on
from sweetspot.reports.exports import recovery_columns, seen_in
from sweetspot.reports.families import Style, failures_of, style_of, styles_of
from sweetspot.reports.frontiers import Frontier, frontier_of
from sweetspot.reports.gallery import Montage, columns_for, galleries, montage, originals_of, shown_inputs, worst_images
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.grades import identity_words, picture_words, seen_words
from sweetspot.reports.leak import NO_PICTURE, is_leak
from sweetspot.reports.maps import ClaimRow, FamilyCharts, charts_of, claim_rows, compared, plot_of, useful_of
from sweetspot.reports.plots import leak_scale
from sweetspot.reports.records import WORST_CASE, attack_records, worst_record
from sweetspot.reports.sweet_spot import (
    Verdict,
    advice,
    at_equal_share,
    by_threat,
    spread,
    sweet_spot,
    tolerance,
    useful,
)
from sweetspot.reports.tables import counted
from sweetspot.reports.text_panels import TextAttack, text_attacks

SHOWN = (
    "ssim leak",
    "mcs leak",
    "similarity leak",
    "ssim",
    "psim",
    "mcs",
    "em",
    "token_accuracy",
    "similarity",
    "recognised",
    "rank",
    "psnr",
)
SHARES = ("recognised", "em")  # of inputs: right or not, so a spread says nothing


@dataclass(frozen=True)
class Entry:
    """A cell of a table: what stands in it, the number that it is sorted by, and whether its row says it elsewhere."""

    text: str
    key: float | str = ""
    is_said: bool = False


@dataclass(frozen=True)
class RunBlock:
    """One run of a cell: its picture with a caption for each row, its figures by attack, its text."""

    seed: int
    name: str
    picture: Montage | None
    captions: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    attacks: tuple[tuple[str, tuple[str, ...]], ...]
    texts: tuple[TextAttack, ...]


@dataclass(frozen=True)
class Panel:
    """Everything about one cell."""

    id: str
    label: str
    figures: tuple[str, ...]
    beside: tuple[tuple[str, str], ...]
    blocks: tuple[RunBlock, ...]
    channel: str
    exact: str  # the id of the same network without the channel, for one behind a channel
    standing: bool  # seen where there is no script, and in print


@dataclass(frozen=True)
class Hero:
    """What the verdict looks like: originals, vanilla's reconstructions, the cell's."""

    picture: Montage | None
    captions: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, TextAttack], ...] = ()


@dataclass(frozen=True)
class Row:
    """A run in the table."""

    cell: str
    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Section:
    """A setting, ready for the page."""

    id: str
    title: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    verdict: Verdict
    advice: str
    scale: Markup
    beside: tuple[tuple[str, str], ...]  # what must be known of the verdict's cell
    warnings: tuple[tuple[str, str], ...]  # of the cells that are shown at first
    more_warnings: tuple[tuple[str, str], ...]
    alone: tuple[tuple[str, str], ...]  # what the verdict would be by one attack alone
    hero: Hero | None
    plot: Markup
    families: tuple[FamilyCharts, ...]
    styles: tuple[tuple[str, Style], ...]
    claims: tuple[str, ...]
    claim_rows: tuple[ClaimRow, ...]
    panels: tuple[Panel, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    selected: str
    metric: str
    legend: str
    is_text: bool
    floor: str  # what a leak is beyond
    frontier: Frontier | None


def section_of(
    number: int,
    setting: Setting,
    verdict: Verdict,
    failed: Sequence[dict[str, Any]],
    max_drop: float | None,
    pictures: int,
) -> Section:
    """The section of one setting.

    Args:
        number: of the section, for the ids in it.
        setting: its cells.
        verdict: about them.
        failed: all cells that failed.
        max_drop: how much utility a cell may lose.
        pictures: how many runs of the whole page have pictures: they share its budget.
    """
    ids = {id(cell): f"s{number}c{place}" for place, cell in enumerate(setting.cells)}
    runs = [run for cell in setting.cells for run in cell.runs if not cell.channel]
    inputs = displayed(setting, runs, pictures)
    originals = originals_of(runs, inputs)
    pictures_of = galleries(runs, inputs, originals)
    best = best_cell(setting, verdict)
    texts, claims = claim_rows(setting)
    standing = {id(best), id(setting.vanilla)} if best is not None else {id(setting.cells[0])}
    panels = [panel_of(setting, cell, ids, pictures_of, id(cell) in standing) for cell in setting.cells]
    columns, rows = table_of(setting, ids)
    warned, others = warnings_in(setting, standing)
    return Section(
        f"s{number}", setting.title, summary_of(setting), tuple(facts_of(setting)), verdict,
        advice(setting, verdict), scale_of(setting, verdict), tuple(beside_verdict(setting, verdict, max_drop)),
        tuple(warned), tuple(others),
        tuple(verdicts_alone(setting, max_drop)), hero_of(setting, best, inputs, originals),
        plot_of(setting, verdict, ids, max_drop),
        tuple(charts_of(setting, ids, failures_of(setting, failed))), tuple(plotted(setting)), tuple(texts),
        tuple(claims), tuple(panels),
        tuple(columns), tuple(rows), ids[id(best or setting.cells[0])], NAMES[setting.recovery],
        legend_of(setting, verdict, max_drop), setting.is_text, setting.floor,
        frontier_of(setting, ids) if setting.is_text else None,
    )  # fmt: skip


def legend_of(setting: Setting, verdict: Verdict, max_drop: float | None) -> str:
    """What the marks of the plot of utility against recovery are."""
    attacked = [cell for cell in setting.cells if cell.recovery is not None]
    marks = ["the bold line is the Pareto front"]
    if setting.vanilla is not None:
        marks.append(f"the shaded band lies within {tolerance(setting, max_drop)}")
    if verdict.found:
        marks.append("★ is the sweet spot")
    if len(styles_of(setting)) > 1:
        marks.append("thin lines are the fronts of the families")
    if any(cell.channel for cell in attacked):
        marks.append("small dots are behind a channel, connected with the network that sends through it")
    whole = compared(setting)
    if any(id(cell) not in whole for cell in attacked):
        marks.append("hollow points went through fewer attacks")
    if any(cell.utility.count > 1 for cell in attacked):
        marks.append("bars are one standard deviation over seeds")
    said = ", ".join(marks)
    return f"{said[0].upper()}{said[1:]}."


def scale_of(setting: Setting, verdict: Verdict) -> Markup:
    """The scale of leak with vanilla and the verdict's cell on it; empty where recovery is no leak."""
    vanilla = verdict.vanilla or setting.vanilla
    if not setting.by_leak or vanilla is None or vanilla.recovery is None:
        return Markup("")
    cell = verdict.cell
    if cell is None or cell.recovery is None:
        return leak_scale(vanilla.recovery.mean, None, NO_PICTURE, setting.floor)
    if verdict.recovery is not None and verdict.base is not None:
        return leak_scale(verdict.base, (cell.label, verdict.recovery), NO_PICTURE, setting.floor)
    return leak_scale(vanilla.recovery.mean, (cell.label, cell.recovery.mean), NO_PICTURE, setting.floor)


def beside_verdict(setting: Setting, verdict: Verdict, max_drop: float | None) -> list[tuple[str, str]]:
    """What must be known beside the sentence: accuracy, both grades, the threat models, certificate and cost."""
    cell = verdict.cell
    if cell is None or not setting.by_leak:
        return by_threat(setting, max_drop) if setting.by_leak else []
    vanilla = f" (vanilla {useful(setting, verdict.vanilla)})" if verdict.vanilla else ""
    given = verdict.recovery if verdict.recovery is not None else cell.recovery.mean if cell.recovery else None
    said = [(setting.utility.capitalize(), useful(setting, cell) + vanilla)]
    said += [("No text" if setting.is_text else "No picture", picture_words(given))] if given is not None else []
    said += [] if setting.is_text else [("No identity", identity_words(cell))]
    return [*said, *by_threat(setting, max_drop), *beside_cell(cell), *at_equal_share(setting, max_drop)]


def beside_cell(cell: Cell) -> list[tuple[str, str]]:
    """Certificate, client share and server gain of a cell's first seed; behind a channel they would be others."""
    run = cell.runs[0]
    seed = f", seed {run.results['config']['seed']}" if len(cell.runs) > 1 else ""
    return [(name + seed, said) for name, said in beside(run.results)] if not cell.channel else []


def warnings_in(setting: Setting, standing: set[int]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What evaluations warn of, with the cell it is about: of those that are shown at first, and of the others."""
    shown, others = dict[tuple[str, str], None](), dict[tuple[str, str], None]()
    for cell in setting.cells:
        for run in cell.runs if not cell.channel else ():
            into = shown if id(cell) in standing else others
            into |= dict.fromkeys((cell.label, each) for each in warnings_of(run.results))
    return list(shown), list(others)


def plotted(setting: Setting) -> list[tuple[str, Style]]:
    """The families in the plot, with how their points look."""
    styles, found = styles_of(setting), {}
    for cell in setting.cells:
        if cell.recovery is not None:
            found["behind a channel" if cell.channel else cell.family] = style_of(cell, styles)
    return list(found.items())


def verdicts_alone(setting: Setting, max_drop: float | None) -> list[tuple[str, str]]:
    """What would be said if each attack were the only one: whose attacker has no data need not fear a decoder."""
    attacks = attacks_of(setting)
    if len(attacks) < 2:
        return []
    return [(attack, sweet_spot(by_attack(setting, attack), max_drop).sentence) for attack in attacks]


def displayed(setting: Setting, runs: Sequence[FoundRun], pictures: int) -> list[int]:
    """The test inputs that the section's pictures show: the same for all its runs, as many as the page has room for."""
    inputs, shape = shown_inputs(runs), setting.about.results["data"]["shape"]
    if not inputs or len(shape) != 3:
        return []
    rows = max(len(run.results["attacks"]) for run in runs) + 1
    return spread_out(inputs, columns_for(pictures, shape, rows))


def spread_out(inputs: Sequence[int], count: int) -> list[int]:
    """So many of the inputs, at equal distances: data that lie in the order of their classes show all of them.

    Example:
        >>> spread_out([0, 1, 2, 3, 4, 5, 6, 7, 8], 3)
        [1, 4, 7]
    """
    count = min(count, len(inputs))
    return [inputs[(2 * place + 1) * len(inputs) // (2 * count)] for place in range(count)]


def best_cell(setting: Setting, verdict: Verdict) -> Cell | None:
    """The cell to show beside vanilla: the verdict's, else the one that gives least away, else any defended one."""
    candidates = [verdict.cell, *reversed(verdict.front), *setting.cells]
    return next((cell for cell in candidates if cell is not None and not cell.is_vanilla), None)


def summary_of(setting: Setting) -> str:
    """How many cells and runs there are, and how they were trained, in a line."""
    results, runs, cells = setting.about.results, len(setting.runs), len(setting.cells)
    noun = "audit" if "audit" in results else "run"
    return f"{counted(cells, 'cell')}, {counted(runs, noun)} · {training_of(results['config'])}"


def training_of(config: dict[str, Any]) -> str:
    """How runs were trained, in a few words; audits were not."""
    if "epochs" not in config:
        return "trained elsewhere"
    return f"{counted(config['epochs'], 'epoch')}, batch {config['batch_size']}, lr {config['lr']:g}"


def facts_of(setting: Setting) -> list[tuple[str, str]]:
    """What the runs were made with."""
    results = setting.about.results
    data, model, config, made = (results[name] for name in ("data", "model", "config", "environment"))
    shape = " × ".join(map(str, data["shape"]))
    seeds = sorted({run.results["config"]["seed"] for run in setting.runs})
    devices = sorted({run.results["environment"]["device"] for run in setting.runs})
    facts = [
        ("Data", f"{data['name']}: {trained_on(results)}, {data['test']:,} to test on, each {shape}"),
        ("Source", str(data["source"])),
        ("Network", f"{model['name']}, cut after {model['cut']}"
            + (f", {model['head']} head" if model.get("head", "default") != "default" else "")),
        ("Training", training_of(config)),
        ("Seeds", ", ".join(map(str, seeds))),
        ("Attacks", "; ".join(attack_facts(setting)) or "none yet"),
        ("Suite", ", ".join(sorted({suite_of(run.results) for run in setting.runs} - {""}))),
        ("Made with", ", ".join(f"{name} {version}" for name, version in made["versions"].items())),
        ("On", "; ".join(devices)),
    ]  # fmt: skip
    return [(name, said) for name, said in facts if said]


def attack_facts(setting: Setting) -> list[str]:
    """Each attack with its budget and how many inputs it saw."""
    said: dict[str, None] = {}
    for run in setting.runs:
        for key, record in sorted(run.results["attacks"].items()):
            spent = record["settings"].get("budget") or record["settings"].get("operating_point")
            words = [str(spent)] if spent else []
            words.append(counted(record["samples"], "prompt" if setting.is_text else "input"))
            said[f"{key} ({', '.join(words)})"] = None
    return sorted(said)


def panel_of(
    setting: Setting, cell: Cell, ids: dict[int, str], pictures: dict[Path, Montage | None], standing: bool
) -> Panel:
    """A cell with its runs."""
    figures = [useful_of(setting, cell)]
    if cell.recovery is not None:
        figures.append(f"worst-case {NAMES[setting.recovery]} {spread(cell.recovery, 3)}")
    else:
        figures.append(cell.gap)
    if cell.utility.count > 1:
        figures.append(f"{cell.utility.count} seeds")
    figures += seen_words(cell)
    about = beside_cell(cell)
    blocks = tuple(block_of(setting, cell, run, pictures.get(run.folder)) for run in cell.runs)
    alike = [each for each in setting.cells if each.defence == cell.defence and not each.channel]
    exact = ids[id(alike[0])] if cell.channel and alike else ""
    return Panel(ids[id(cell)], cell.label, tuple(figures), tuple(about), blocks, cell.channel, exact, standing)


def block_of(setting: Setting, cell: Cell, run: FoundRun, picture: Montage | None) -> RunBlock:
    """One run of a cell, as a picture, as numbers, as text."""
    attacks = run.results["attacks"]
    picture = picture if not cell.channel else None  # reconstructions are kept of what is released as it is
    captions = tuple((row, figure_of(attacks.get(row), setting.recovery)) for row in picture.rows) if picture else ()
    found, worst = attack_records(run.results, cell.channel), worst_record(run.results, cell.channel)
    records = {key: found[key] for key in sorted(found, key=lambda key: (key in FLOORS, key)) if key != GALLERY}
    if worst and not (cell.channel and len(records) == 1):
        records[WORST_CASE] = worst
    metrics = [name for name in SHOWN if any(isinstance(record.get(name), dict) for record in records.values())]
    if any(map(is_leak, metrics)):
        metrics = [name for name in metrics if name != "psnr"]  # a panel has room for six
    rows = tuple(
        (f"{key} (stopped)" if record.get("stopped") else key, tuple(figure_of(record, name) for name in metrics))
        for key, record in records.items()
    )
    texts = tuple(text_attacks(run, channel=cell.channel)) if setting.is_text else ()
    named = tuple(NAMES[name] for name in metrics)
    return RunBlock(run.results["config"]["seed"], run.name, picture, captions, named, rows, texts)


def figure_of(record: dict[str, Any] | None, metric: str) -> str:
    """`mean ± std (most leaked)` of one attack; empty where it was not measured."""
    figures = (record or {}).get(metric)
    if not isinstance(figures, dict):
        return ""
    if metric in SHARES:
        return f"{100 * figures['mean']:.0f} %"
    return (
        f"{figures['mean']:.1f} ± {figures['std']:.1f} ({figures['worst']:.0f})"
        if metric in ("psnr", "rank")
        else mean_std_worst(figures)
    )


def mean_of(figures: Any, metric: str) -> str:
    """The mean of a summary as a table has it."""
    if not isinstance(figures, dict):
        return ""
    return f"{100 * figures['mean']:.0f} %" if metric in SHARES else f"{figures['mean']:.{1 + (metric != 'rank')}f}"


def hero_of(setting: Setting, best: Cell | None, inputs: Sequence[int], originals: np.ndarray | None) -> Hero | None:
    """The best cell's reconstructions below vanilla's, each by the attack that recovered it best."""
    sides = [cell for cell in (setting.vanilla, best) if cell is not None]
    if setting.is_text:
        found = [(cell.label, text_attacks(cell.runs[0], 3)) for cell in sides if not cell.channel]
        texts = tuple((label, attacks[0]) for label, attacks in found if attacks)
        return Hero(None, (), texts) if texts else None
    rows = {"original": originals[: len(inputs)]} if originals is not None else {}
    captions = [("Original", "")] if rows else []
    for cell in sides:
        images = worst_images(cell.runs[0], inputs, setting.recovery) if inputs else None
        if images is not None:
            rows[cell.label] = images
            said = f"{NAMES[setting.recovery]} {spread(cell.recovery, 3)}" if cell.recovery else ""
            captions.append((cell.label, said))
    picture = montage(rows) if rows.keys() - {"original"} else None
    return Hero(picture, tuple(captions)) if picture else None


def table_of(setting: Setting, ids: dict[int, str]) -> tuple[list[str], list[Row]]:
    """The head of the table of runs, and its rows."""
    recoveries, seen = recovery_columns(setting), seen_in(setting)
    axes = setting.axes
    columns = ["defence", *(axis.label for axis in axes), "seed", setting.utility, "distance"]
    columns += [
        *(f"{attack} {NAMES[metric]}" for attack, metric in recoveries),
        *(NAMES[name] for name in seen),
        "time",
    ]
    every = [*recoveries, *((WORST_CASE, name) for name in seen)]
    rows = []
    for cell in setting.cells:
        if not cell.channel:
            rows += [Row(ids[id(cell)], run.name, tuple(entries(setting, cell, run, axes, every))) for run in cell.runs]
    return columns, rows


def entries(
    setting: Setting, cell: Cell, run: FoundRun, axes: Sequence[Axis], recoveries: Sequence[tuple[str, str]]
) -> list[Entry]:
    """One run as a row."""
    results = run.results
    utility = results["utility"][setting.utility]
    spent = results["environment"]["seconds"] + sum(each.get("seconds", 0.0) for each in results["attacks"].values())
    row = [
        Entry(cell.label, cell.label),
        *(entry_along(axis, cell) for axis in axes),
        Entry(str(results["config"]["seed"]), results["config"]["seed"]),
        Entry(f"{utility:.1f}" if setting.utility == "perplexity" else f"{100 * utility:.2f} %", utility),
        Entry(f"{results['separability']['mean']:.3f}", results["separability"]["mean"]),
    ]
    for attack, metric in recoveries:
        record = results["worst_case"] if attack == WORST_CASE else results["attacks"].get(attack)
        figures = (record or {}).get(metric)
        known = isinstance(figures, dict)
        # of the attacks by themselves the means alone, or the table has no room; panels say the rest
        is_whole = (attack, metric) == (WORST_CASE, setting.recovery)
        text = figure_of(record, metric) if is_whole else mean_of(figures, metric)
        row.append(Entry(text if known else "–", figures["mean"] if figures and known else ""))
    return [*row, Entry(duration(spent), spent)]


def entry_along(axis: Axis, cell: Cell) -> Entry:
    """Where a cell lies along an axis; words are sorted by their place on it. The cell's label says it too."""
    if axis.key not in cell.keys:
        return Entry("–", "", True)
    value = cell.keys[axis.key]
    known = axis.values.index(value) if value in axis.values else -1
    return Entry(written(value), value if axis.is_numeric else known, True)
