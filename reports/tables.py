"""Runs as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def describe_defence(defence: dict[str, Any]) -> str:
    """A run's defence as the papers write it: `MixCon(1, 0.0001)` is (λ, β)."""
    if defence["name"] == "mixcon":
        return f"MixCon({defence['lambda']:g}, {defence['beta']:g})"
    return f"UniCon({defence['lambda']:g})" if defence["name"] == "unicon" else "Vanilla"


def results_table(results: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """Print one row a run: what it is, what it is good for, how far apart its representations lie."""
    table = Table()
    for column in ("data", "network, cut", "defence", "accuracy", "mean pairwise distance", "time"):
        table.add_column(column, justify="right" if column in ("accuracy", "time") else "left")
    for result in results:
        separability = result["separability"]
        table.add_row(
            result["data"]["name"],
            f"{result['model']['name']}, {result['model']['cut']}",
            describe_defence(result["defence"]),
            f"{100 * result['utility']['accuracy']:.2f} %",
            f"{separability['mean']:.3f} ({separability['min']:.3f} … {separability['max']:.3f})",
            f"{result['environment']['seconds']:.0f} s",
        )
    (console or Console()).print(table)
