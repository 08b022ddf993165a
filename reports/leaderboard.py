"""Defences side by side at equal accuracy, as data: one JSON file a defence, and a Markdown table made from these."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.files import check_writable, replacing
from sweetspot.metrics.summary import BESIDE
from sweetspot.reports.cells import NAMES
from sweetspot.reports.criteria import COSTS, cost_words
from sweetspot.reports.entries import costs_of, entries_of
from sweetspot.reports.exports import escaped, row_in
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.tables import counted
from sweetspot.runs.folder import read_json

NEEDED = {
    "name", "defence", "strength", "options", "dataset", "network", "cut", "training", "metric", "vanilla",
    "leak", "leak_at", "error", "client_share", "server_gain", "certificate", "attacks", "worst_case", "suite", "seeds",
    "frontier", "commands",
}  # fmt: skip
BESIDE_LEAK = [
    "its leak", "strongest attack", "re-identified (≤)", "nats ≤", "client", "server gain, points", "seeds", "suite",
]  # fmt: skip
WORDS = {"defence", "cut", "strength", "strongest attack", "suite"}  # columns that are no numbers
ABOUT = (
    "Leak beyond the label, worst case over attacks: 0 is what the label alone gives, 1 everything; of text beyond a "
    "blind guess, by somebody who sees no states. It is compared where a defence costs one and three percentage points "
    "of vanilla's accuracy, or 10, 25 and 50 % of its perplexity, in a straight line between the strengths that were "
    "run; – where it costs more at every strength. ± are two standard errors. The columns from strength on are about "
    "the strength that leaks least at the first of these costs; where there is none, the most useful one."
)


@dataclass(frozen=True)
class Leaderboard:
    """What was written.

    Args:
        markdown: the table's file; the entries lie in the folder of its name.
        entries: of these runs.
        left_out: one line for each setting or file that has no place in the table.
    """

    markdown: Path
    entries: list[dict[str, Any]]
    left_out: list[str]


def check_leaderboard(out: str | Path | None) -> None:
    """Refuse, before anything is read, a file that cannot be written in the end; None is no leaderboard."""
    if out is None:
        return
    path = Path(out)
    if path.suffix.lower() != ".md":
        raise UserError(f"--leaderboard must end in .md; got {path}")
    check_writable("--leaderboard", path)
    if path.with_suffix("").exists() and not path.with_suffix("").is_dir():
        raise UserError(f"--leaderboard {path}: its entries belong in {path.with_suffix('')}/, which is no folder")


def write_leaderboard(runs: Iterable[FoundRun], out: Path) -> Leaderboard:
    """Write an entry for each defence of these runs, and the table of all entries that lie beside it.

    Strengths of an entry that these runs do not have stay in it, so that a leaderboard grows from run to run.

    Args:
        runs: finished ones; those whose leak was not measured are left out.
        out: the .md file.
    """
    check_leaderboard(out)
    folder = out.with_suffix("")
    before = {entry["name"]: entry for entry in read_entries(folder)[0]}
    entries, left_out = entries_of(runs, before)
    if not entries and not any(folder.glob("*.json")):
        why = left_out[0] if left_out else "there are no runs"
        raise UserError(f"nothing belongs on a leaderboard: {why}")
    folder.mkdir(exist_ok=True)
    for entry in entries:
        with replacing(folder / f"{entry['name']}.json") as temporary:
            text = json.dumps(entry, indent=2, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")
    stored, broken = read_entries(folder)
    with replacing(out) as temporary:
        temporary.write_text(markdown_of(stored), encoding="utf-8", errors="backslashreplace")
    return Leaderboard(out, entries, [*left_out, *broken])


def read_entries(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries in a folder, and a line for each file that is none."""
    entries, broken = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            entry = read_json(file)
        except (OSError, ValueError) as error:
            broken.append(f"{file} cannot be read ({error})")
            continue
        if is_entry(entry):
            entries.append(entry)
        else:
            broken.append(f"{file} is no entry of a leaderboard")
    return entries, broken


def is_entry(entry: Any) -> bool:
    """Whether a file says what an entry says: a row can be made of it."""
    if not isinstance(entry, dict) or not entry.keys() >= NEEDED:
        return False
    try:
        markdown_of([entry])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return True


def markdown_of(entries: Sequence[dict[str, Any]]) -> str:
    """A table for each dataset, network and length of training, the least leak at the least cost first."""
    tables: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        training = entry["training"]
        key = (entry["dataset"], entry["network"], training["inputs"], training["epochs"])
        tables.setdefault(key, []).append(entry)
    return "\n".join(["# Leaderboard", "", ABOUT, "", *(table_of(tables[key]) for key in sorted(tables, key=str))])


def table_of(entries: Sequence[dict[str, Any]]) -> str:
    """The table of entries that can be compared."""
    first = entries[0]
    training = f"{first['training']['inputs']:,} inputs, {counted(first['training']['epochs'], 'epoch')}"
    title = escaped(f"{first['dataset']}, {first['network']}: {training}, leak by {NAMES[first['metric']]}")
    head = head_of(utility_in(first))
    lines = [f"## {title}", "", row_in(head), row_in("---" if name in WORDS else "---:" for name in head)]
    return "\n".join([*lines, *(row_in(map(escaped, row_of(entry))) for entry in sorted(entries, key=rank)), ""])


def utility_in(entry: dict[str, Any]) -> str:
    """What an entry is useful by; older ones are all of accuracy."""
    return str(entry.get("utility", "accuracy"))


def head_of(utility: str) -> list[str]:
    """The columns of a table."""
    first, *others = (f"at {cost_words(utility, cost)}" for cost in COSTS[utility])
    return ["defence", "cut", f"leak {first}", *others, "strength", utility, *BESIDE_LEAK]


def rank(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What an entry is sorted by: its leak at the least cost, then at the next; those that do not get there last."""
    utility = utility_in(entry)
    leaks = [math.inf if leak is None else leak for leak in map(entry["leak_at"].get, costs_of(utility))]
    return (*leaks, entry[utility] if utility == "perplexity" else -entry[utility], entry["name"])


def row_of(entry: dict[str, Any]) -> list[str]:
    """One entry as a row."""
    certificate, error, macs = entry["certificate"] or {}, entry["error"], entry["client_share"]["macs"]
    utility = utility_in(entry)
    at = [with_error(entry["leak_at"].get(name), error["leak_at"].get(name)) for name in costs_of(utility)]
    bayes, bound, nats = (certificate.get(name) for name in ("reid_bayes", "reid_bound", "nats"))
    useful = f"{100 * entry[utility]:.2f} % (vanilla {100 * entry['vanilla']:.2f} %)"
    if utility == "perplexity":
        useful = f"{entry[utility]:.1f} (vanilla {entry['vanilla']:.1f})"
    return [
        entry["defence"], entry["cut"], *at, entry["strength"], useful, with_error(entry["leak"], error["leak"]),
        strongest(entry), f"{bayes:.2f} (≤ {bound:.2f})" if None not in (bayes, bound) else "–",
        f"{nats:.2f}" if nats is not None else "–", f"{100 * macs:.0f} %" if macs is not None else "–",
        f"{100 * gain:.2f}" if (gain := entry["server_gain"]) is not None else "–",
        str(len(entry["seeds"])), ", ".join(entry["suite"]) or "–",
    ]  # fmt: skip


def with_error(value: float | None, error: float | None) -> str:
    """A figure with its stated error; a dash where there is none.

    Example:
        >>> with_error(0.123, 0.0312), with_error(None, None)
        ('0.12 ± 0.03', '–')
    """
    return "–" if value is None or error is None else f"{value:.2f} ± {error:.2f}"


def strongest(entry: dict[str, Any]) -> str:
    """The attack with the largest mean leak, by itself; of those that reconstruct."""
    metric = entry["metric"]
    rebuilt = {key: each["leak"] for key, each in entry["attacks"].items() if key not in BESIDE}
    leaks = {key: leak[metric]["mean"] for key, leak in rebuilt.items() if metric in leak}
    best = max(leaks, key=lambda key: leaks[key], default=None)
    return "–" if best is None else f"{best} {leaks[best]:.2f}"
