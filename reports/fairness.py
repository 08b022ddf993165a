"""Whether cells can be compared: which attacks all of them went through, and what must be said where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweetspot.reports.cells import Cell, Setting
from sweetspot.reports.records import HYBRID


def equally_attacked(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """The cells that went through every attack that is asked of them, and the others.

    A cell that was spared an attack is not safer for it. Asked of all is what vanilla went through and any defended
    cell too; a cell that went through more is compared by all of it, which can only count against it. Behind a channel
    text is attacked by hybrid alone, so its channels are compared by it.
    """
    exact = [cell for cell in cells if not cell.channel]
    vanilla = [cell.attacks for cell in exact if cell.is_vanilla]
    defended = frozenset().union(*(cell.attacks for cell in exact if not cell.is_vanilla))
    shared = frozenset().union(*vanilla) & defended
    asked = shared or defended.union(*vanilla)  # where nothing is shared, nobody is compared with anybody
    whole = [cell for cell in cells if cell.attacks >= asked or (cell.channel and cell.attacks == {HYBRID})]
    return whole, [cell for cell in cells if cell not in whole]


def attacks_behind(cells: Sequence[Cell]) -> frozenset[str]:
    """The attacks that all of some cells went through; channels, which may have seen fewer, are not counted."""
    exact = [cell.attacks for cell in cells if not cell.channel]
    return frozenset.intersection(*exact) if exact else frozenset()


def is_adaptive(attack: str) -> bool:
    """Whether an attack fits itself to its victim; all that recover text from states do."""
    return attack.endswith(("/adaptive", "/no-data")) or attack.startswith("text/")


def more_attacks(cells: Sequence[Cell]) -> list[str]:
    """A line where some cells went through attacks that not all did."""
    asked = attacks_behind(cells)
    more = [f"{cell.label} ({', '.join(sorted(cell.attacks - asked))})" for cell in cells if cell.attacks - asked]
    return [f"went through more than the others, which counts against them: {few(more)}"] if more else []


def unequal_attacks(setting: Setting) -> list[str]:
    """A line for each attack that was run with different settings or on different numbers of inputs."""
    lines = []
    spent: dict[str, set[str]] = {}
    for run in setting.runs:
        for key, record in run.results["attacks"].items():
            words = [f"{name} {value}" for name, value in sorted(record["settings"].items()) if name != "seed"]
            spent.setdefault(key, set()).add(", ".join([*words, f"{record['samples']} inputs"]))
    for key, kinds in sorted(spent.items()):
        if len(kinds) > 1:
            lines.append(f"{key} was not the same for all runs ({' / '.join(sorted(kinds))}): compare with care")
    if setting.is_text and any(cell.channel for cell in setting.cells) and set(spent) - {HYBRID}:
        lines.append(f"behind a channel only {HYBRID} was run, so cells with one went through fewer attacks")
    return lines


def stopped_attacks(setting: Setting) -> list[str]:
    """A line where an attack was stopped on its way: what it has so far is less than it would get."""
    stopped: dict[str, None] = {}
    for cell in setting.cells:
        for run in cell.runs if not cell.channel else ():
            for key, record in sorted(run.results["attacks"].items()):
                if record.get("stopped"):
                    stopped[f"{key} of {cell.label}"] = None
    return [f"stopped early, and so weaker than they are: {few(list(stopped))}"] if stopped else []


def unequal_seeds(cells: Sequence[Cell]) -> list[str]:
    """A line where not all cells have the same seeds."""
    kinds = {cell.seeds for cell in cells}
    if len(kinds) < 2:
        return []
    most = max(kinds, key=len)
    return [f"not all cells have the seeds {sorted(most)}: {named([each for each in cells if each.seeds != most])}"]


def named(cells: Iterable[Cell], most: int = 8) -> str:
    """Cells by their labels, the first few of them."""
    return few([cell.label for cell in cells], most)


def few(labels: Sequence[str], most: int = 8) -> str:
    """The first of some labels, and how many more there are."""
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")
