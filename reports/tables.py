"""Runs as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def short(number: float) -> str:
    """A number in as few characters as it takes.

    Example:
        >>> short(1.0), short(0.01), short(1e-4), short(2.5e-8)
        ('1', '0.01', '1e-4', '2.5e-8')
    """
    mantissa, exponent = f"{number:e}".split("e")
    return min(f"{number:g}", f"{float(mantissa):g}e{int(exponent)}", key=len)


def describe_defence(defence: dict[str, Any]) -> str:
    """A run's defence as the papers write it: `MixCon(1, 1e-4)` is (λ, β)."""
    if defence["name"] == "mixcon":
        return f"MixCon({short(defence['lambda'])}, {short(defence['beta'])})"
    if defence["name"] == "none":
        return "Vanilla"
    return f"{ {'unicon': 'UniCon'}.get(defence['name'], defence['name']) }({short(defence['lambda'])})"


def results_table(results: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """Print one row a run: what it is, what it is good for, how far apart, on average, its representations lie."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("data", "network, cut", "defence", "accuracy", "distance", "time"):
        table.add_column(column, justify="left" if column in ("data", "network, cut", "defence") else "right")
    for result in results:
        table.add_row(
            result["data"]["name"],
            f"{result['model']['name']}, {result['model']['cut']}",
            describe_defence(result["defence"]),
            f"{100 * result['utility']['accuracy']:.2f} %",
            f"{result['separability']['mean']:.3f}",
            f"{result['environment']['seconds']:.0f} s",
        )
    (console or Console()).print(table)
