"""The figures of a report for other programs and for papers: results.csv, a row a run, and results.md, a row a cell."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from sweetspot.metrics.summary import FLOORS, HIGHER_IS_WORSE, mean_std_worst
from sweetspot.reports.axes import keys_of, written
from sweetspot.reports.beside import suite_of
from sweetspot.reports.cells import NAMES, Cell, Setting, attacks_of, records_of
from sweetspot.reports.frontiers import frontier_of
from sweetspot.reports.leak import leak_of
from sweetspot.reports.records import LEAK, WORST_CASE, pooled
from sweetspot.reports.sweet_spot import Verdict, useful
from sweetspot.runs.record import is_number

ALWAYS = ("lambda", "beta", "cut")  # columns that every table has, whatever differs
SEEN = ("recognised", "rank")  # what an independent classifier and a search make of what came back
PARTS = ("mean", "std", "worst", "worst_decile")


def csv_text(settings: Sequence[Setting]) -> str:
    """All figures of all runs; a figure that a run does not have is left empty."""
    rows = [row_of(setting, cell_run) for setting in settings for cell_run in setting.runs]
    columns: dict[str, None] = dict.fromkeys(name for row in rows for name in row)
    of_attacks = {
        each for setting in settings for run in setting.runs for each in [*run.results["attacks"], WORST_CASE]
    }
    first = [name for name in columns if not name.startswith(tuple(of_attacks))]
    rest = sorted(name for name in columns if name not in first)
    file = io.StringIO()
    writer = csv.DictWriter(file, [*first, *rest], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def row_of(setting: Setting, run: Any) -> dict[str, Any]:
    """One run as a row."""
    results = run.results
    defence, config, environment = results["defence"], results["config"], results["environment"]
    chain = " + ".join(each["name"] for each in defence.get("release") or [])
    keys = keys_of(defence, str(results["model"]["cut"]))
    row: dict[str, Any] = {
        "run": run.name, "setting": setting.title, "data": results["data"]["name"],
        "network": results["model"]["name"], "cut": results["model"]["cut"], "defence": defence["name"],
        "release": chain, "lambda": defence["lambda"], "beta": defence["beta"],
        "seed": config["seed"], "epochs": config.get("epochs", ""), "batch size": config.get("batch_size", ""),
        "lr": config.get("lr", ""),
        "accuracy": results["utility"]["accuracy"], "perplexity": results["utility"].get("perplexity", ""),
        "distance": results["separability"]["mean"], "seconds": environment["seconds"], "device": environment["device"],
    }  # fmt: skip
    row |= {name if name not in row else f"defence {name}": value for name, value in keys.items() if name not in ALWAYS}
    row |= beside_it(results)
    for key, record in {**results["attacks"], WORST_CASE: results["worst_case"]}.items():
        row |= figures_of(key, record)
        row |= {f"{key} {name}": record[name] for name in ("samples", "seconds", "verified") if name in record}
        for channel, behind in record.get("channels", {}).items():
            row |= figures_of(f"{key}, {channel}", behind)
            row |= {f"{key}, {channel} {name}": behind[name] for name in ("accuracy", "perplexity") if name in behind}
    return row


def beside_it(results: dict[str, Any]) -> dict[str, Any]:
    """The suite, certificate and cost of a run, a column a figure."""
    certificate = results.get("certificate") if isinstance(results.get("certificate"), dict) else {}
    cost = results.get("cost") if isinstance(results.get("cost"), dict) else {}
    numbers = {**{f"certificate {name}": value for name, value in (certificate or {}).items()}, **(cost or {})}
    row = {name.replace("_", " "): value for name, value in numbers.items() if is_number(value)}
    return {**({"suite": suite_of(results)} if suite_of(results) else {}), **row}


def figures_of(key: str, record: dict[str, Any]) -> dict[str, Any]:
    """Every metric of one attack, a column a figure."""
    every = [*HIGHER_IS_WORSE, *([] if "reid" in HIGHER_IS_WORSE else ["reid"])]
    measured = [name for name in [*every, *map(leak_of, every)] if isinstance(record.get(name), dict)]
    return {f"{key} {name} {part}": record[name][part] for name in measured for part in PARTS if part in record[name]}


def figures(cell: Cell, attack: str, metric: str) -> str:
    """`mean ± std (most leaked)` of a cell; a dash where nothing was measured."""
    found = pooled(metric, records_of(cell, attack))
    return mean_std_worst(found) if found is not None else "–"


def markdown_text(settings: Sequence[Setting], verdicts: Sequence[Verdict]) -> str:
    """A table for each setting, as papers print them."""
    return "\n".join(table_of(setting, verdict) for setting, verdict in zip(settings, verdicts, strict=True))


def recovery_columns(setting: Setting) -> list[tuple[str, str]]:
    """Which score of which attack has a column: the setting's own, and of floors, which leak nothing, what it is of."""
    floors = [each for each in FLOORS if any(each in run.results["attacks"] for run in setting.runs)]
    score = setting.recovery.removesuffix(LEAK)
    return [(key, setting.recovery) for key in (WORST_CASE, *attacks_of(setting))] + [(key, score) for key in floors]


def seen_in(setting: Setting) -> list[str]:
    """Whether an independent classifier and a search looked at what came back."""
    return [name for name in SEEN if any(name in run.results["worst_case"] for run in setting.runs)]


def table_of(setting: Setting, verdict: Verdict) -> str:
    """One setting: its verdict, and a row a cell; the sweet spot is bold."""
    columns, seen = recovery_columns(setting), seen_in(setting)
    axes = setting.axes
    head = [
        "defence",
        *(axis.label for axis in axes),
        "seeds",
        setting.utility,
        "distance",
        *(f"{attack}, {NAMES[metric]}" for attack, metric in columns),
        *(f"{WORST_CASE}, {NAMES[name]}" for name in seen),
    ]
    lines = [f"## {escaped(setting.title)}", "", escaped(verdict.sentence), ""]
    lines += [f"- {escaped(note)}" for note in verdict.notes] + ([""] if verdict.notes else [])
    lines += [row_in(head), row_in(["---"] + ["---:"] * (len(head) - 1))]
    for cell in setting.cells:
        label = f"**{escaped(cell.label)}**" if verdict.found and cell is verdict.cell else escaped(cell.label)
        distance = statistics.fmean(run.results["separability"]["mean"] for run in cell.runs)
        along = [escaped(written(cell.keys[axis.key])) if axis.key in cell.keys else "–" for axis in axes]
        cells = [label, *along, str(len(cell.runs)), useful(setting, cell), f"{distance:.3f}"]
        recovered = [figures(cell, attack, metric) for attack, metric in columns]
        lines.append(row_in([*cells, *recovered, *(figures(cell, WORST_CASE, name) for name in seen)]))
    about = "Recovery as mean ± std (most leaked) over inputs and seeds."
    leak = f" Leak: 0 is what {setting.floor} alone gives back, 1 everything." if setting.by_leak else ""
    return "\n".join([*lines, "", about + leak, "", *(frontier_table(setting) if setting.is_text else [])])


def frontier_table(setting: Setting) -> list[str]:
    """What each family leaks at equal cost, as lines; none where nothing can be compared."""
    frontier = frontier_of(setting)
    if frontier is None:
        return []
    head = [f"{NAMES[setting.recovery]} at", *frontier.costs]
    rows = [row_in([escaped(row.name), *row.leaks]) for row in frontier.rows]
    return [row_in(head), row_in(["---"] + ["---:"] * len(frontier.costs)), *rows, "", frontier.about, ""]


def escaped(text: str) -> str:
    """Text that Markdown takes for nothing but text."""
    return " ".join("".join(f"\\{letter}" if letter in "|<>*_`[]\\" else letter for letter in text).split())


def row_in(cells: Iterable[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
