"""Runs as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def results_table(results: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """Print one row a run: what it is, what it is good for, how far apart its representations lie."""
    table = Table(title_justify="left")
    for column in ("run", "data", "model, cut", "defence", "accuracy", "pairwise distance: mean (min … max)", "time"):
        table.add_column(column, justify="right" if column in ("accuracy", "time") else "left", overflow="fold")
    for result in results:
        defence, separability = result["defence"], result["separability"]
        kind = "vanilla" if defence["name"] == "none" else f"{defence['name']} λ={defence['lambda']:g}"
        if defence["name"] == "mixcon":
            kind += f" β={defence['beta']:g}"
        table.add_row(
            result["name"],
            result["data"]["name"],
            f"{result['model']['name']}, {result['model']['cut']}",
            kind,
            f"{100 * result['utility']['accuracy']:.2f} %",
            f"{separability['mean']:.4g} ({separability['min']:.3g} … {separability['max']:.3g})",
            f"{result['environment']['seconds']:.0f} s",
        )
    (console or Console()).print(table)
