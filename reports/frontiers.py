"""Families of cells at equal cost: what each leaks where it costs a given part of vanilla's utility.

A network and a channel behind it are a cell too, so that noise put on vanilla afterwards is a family like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sweetspot.reports.cells import NAMES, Cell, Setting
from sweetspot.reports.criteria import COSTS, cost_words
from sweetspot.reports.entries import Point, frontier, leak_at
from sweetspot.reports.families import Style, looks_of, style_of
from sweetspot.reports.maps import compared, levels_of
from sweetspot.reports.plots import Chain, trade_off
from sweetspot.reports.plots import Point as Mark
from sweetspot.reports.sweet_spot import cell_figures, recovered


@dataclass(frozen=True)
class FrontierRow:
    """A family: its name, how it looks, and what it leaks at each cost, in words."""

    name: str
    style: Style
    leaks: tuple[str, ...]


@dataclass(frozen=True)
class Frontier:
    """The families of a setting at equal cost.

    Args:
        about: how the figures are read.
        costs: the columns.
        rows: one a family.
        plot: utility relative to vanilla's against recovery, a line a family.
    """

    about: str
    costs: tuple[str, ...]
    rows: tuple[FrontierRow, ...]
    plot: Markup


def frontier_of(setting: Setting, ids: Mapping[int, str] | None = None) -> Frontier | None:
    """What each family leaks at each cost; None where there is no vanilla, or nothing to compare with it.

    Args:
        setting: the cells.
        ids: of the cells, by `id(cell)`; None: the plot is for nobody to choose cells in.
    """
    lines = lines_of(setting)
    if not lines:
        return None
    styles, costs = looks_of(lines), COSTS[setting.utility]
    rows = []
    for name, cells in lines.items():
        front = front_of(setting, cells)
        rows.append(FrontierRow(name, styles[name], tuple(reached(front, cost) for cost in costs)))
    about = (
        f"Worst-case {NAMES[setting.recovery]} where a family costs so much of vanilla's {setting.utility}, in a "
        f"straight line between the strengths that were run; – where every strength costs more, ≤ where every "
        f"strength costs less."
    )
    words = tuple(cost_words(setting.utility, cost) for cost in costs)
    return Frontier(about, words, tuple(rows), plot_of(setting, lines, styles, ids or {}))


def lines_of(setting: Setting) -> dict[str, list[Cell]]:
    """The cells of each family that went through every attack; networks begin the families of their channels.

    Vanilla is no family of its own: it is where the families of its channels begin.
    """
    vanilla, whole = setting.vanilla, compared(setting)
    if vanilla is None or vanilla.recovery is None:
        return {}
    cells = [cell for cell in setting.cells if id(cell) in whole]
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.is_vanilla:
            lines.setdefault(cell.line, []).append(cell)
    for line in lines.values():
        sent = [(cell.defence, cell.cut) for cell in line if cell.channel]
        line += [cell for cell in cells if not cell.channel and (cell.defence, cell.cut) in sent]
    return lines


def reached(front: Sequence[Point], cost: float) -> str:
    """What a front leaks at a cost, in words.

    Example:
        >>> front = [Point((), 100.0, 0.0, 0.9, 0.0), Point((), 120.0, 0.2, 0.5, 0.0)]
        >>> reached(front, 0.1), reached(front, 0.5), reached(front[1:], 0.1)
        ('0.70', '≤ 0.50', '–')
    """
    found = leak_at(front, cost)
    if found is None:
        return "–"
    return f"{'≤ ' * (front[-1].drop < cost - 1e-12)}{found[0]:.2f}"


def plot_of(
    setting: Setting, lines: Mapping[str, Sequence[Cell]], styles: Mapping[str, Style], ids: Mapping[int, str]
) -> Markup:
    """Utility relative to vanilla's against recovery, a line a family through its front."""

    def mark(cell: Cell, style: Style) -> Mark:
        y = recovered(cell)
        spread = y.std if y.count > 1 else 0.0
        tip = cell_figures(setting, cell)
        place, chosen = 1 + setting.drop(cell), ids.get(id(cell), "")
        return Mark(place, y.mean, 0.0, spread, chosen, cell.label, tip, style.kind, style.shape)

    assert setting.vanilla is not None  # or there would be no lines
    marks, chains = [mark(setting.vanilla, style_of(setting.vanilla, {}))], []
    for name, cells in lines.items():
        style = styles[name]
        chains.append(Chain(f"family {style.kind}", [(1 + each.drop, each.leak) for each in front_of(setting, cells)]))
        # the network of a channel is drawn by its own family
        marks += [mark(cell, style) for cell in cells if cell.line == name]
    x_name = f"{setting.utility} relative to vanilla's"
    return trade_off(
        marks, (), x_name, f"worst-case {NAMES[setting.recovery]}", setting.utility == "perplexity", None,
        levels_of(setting) if setting.by_leak else (), [chain for chain in chains if len(chain.points) > 1],
    )  # fmt: skip


def front_of(setting: Setting, cells: Sequence[Cell]) -> list[Point]:
    """The cells that no other of them beats in both utility and recovery, as points without an error."""
    return frontier(
        Point(cell.runs, cell.utility.mean, setting.drop(cell), recovered(cell).mean, 0.0) for cell in cells
    )
