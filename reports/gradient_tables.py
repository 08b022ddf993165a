"""A recovered training batch as a table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

STAGES = {"tensor": "tensor only", "polished": "polished"}
WORDS = {
    "exact": "exact: only the true batch explains the gradient to its last digits",
    "exact samples": "exact samples: only they explain the gradient to its last digits; but the labels are not right",
    "up to noise": "up to noise: no batch of this size explains the gradient much better",
    "not recovered": "not recovered: this batch does not explain the gradient",
}
HIDDEN = {"sign": "whether a sample is x or −x", "scale": "a sample's norm"}


def gradient_table(results: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what each stage recovered, a row a stage, and below it the verdict, which needs no ground truth."""
    console = console or Console()
    has_truth = "truth" in results
    table = Table(box=SIMPLE_HEAD, title=title_of(results), title_justify="left", title_style="bold", pad_edge=False)
    scores = ("error (rms)", "largest", "labels right", "label error") if has_truth else ("labels",)
    for column in ("stage", *scores, "residual"):
        table.add_column(column, justify="left" if column == "stage" else "right", no_wrap=True)
    for name, row in results["recovered"].items():
        table.add_row(STAGES[name], *(score_cells(row) if has_truth else [labels_of(row)]), f"{row['residual']:.1e}")
    console.print(table)
    console.print(verdict_line(results), highlight=False)
    if results["unknown"]:
        console.print(f"no gradient tells {' or '.join(HIDDEN[each] for each in results['unknown'])} here")
    spent = {name: seconds for name, seconds in results["seconds"].items() if name not in ("attack", "client")}
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in spent.items())
    console.print(f"{results['seconds']['attack']:.2f} s ({parts})", highlight=False)


def title_of(results: Mapping[str, Any]) -> str:
    """The round in one line."""
    network, config, data = results["network"], results["config"], results["data"]
    size = f"m = {network['width']}, d = {network['dim']}, B = {data['batch']}"
    depth = f", {network['depth']} layers" if network["depth"] > 2 else ""
    defences = [f"{name} {config[name]:g}" for name in ("clip", "noise", "prune") if config[name]]
    return ", ".join([f"{data['name']}: {network['activation']}, {size}{depth}", *defences])


def score_cells(row: Mapping[str, Any]) -> list[str]:
    """A stage's distance from the truth."""
    return [
        f"{row['rms']:.2g}",
        f"{row['worst']:.2g}",
        f"{100 * row['labels_right']:.0f} %",
        f"{max(row['label_error']):.1e}",
    ]


def labels_of(row: Mapping[str, Any], most: int = 8) -> str:
    """The recovered labels, the first few of many.

    Example:
        >>> labels_of({"y": [1.0, -0.99999]})
        '1, -1'
    """
    shown = ", ".join(f"{y:.4g}" for y in row["y"][:most])
    return shown + (", …" if len(row["y"]) > most else "")


def verdict_line(results: Mapping[str, Any]) -> str:
    """Whether to believe the batch."""
    if "polished" not in results["recovered"]:
        return "tensor stage only: leave --tensor-only out for a verdict"
    said, known = WORDS[results["verdict"]], results["config"].get("labels") or []
    assumed = results.get("loss", {"name": results["config"].get("loss"), "found": []})
    if assumed["found"]:
        among = ", ".join(f"{label:g}" for label in known)
        sure, are = ("", "are of") if results["verdict"] == "exact" else ("probably ", "are near")
        return f"{said}\nthe client's loss is {sure}{' or '.join(assumed['found'])}: by it all labels {are} {among}"
    if results["verdict"] != "exact samples":
        return said
    if known:
        return f"{said}\n(by no squared loss are all labels of those that --labels names)"
    others = [loss for loss in results.get("fitting_losses", []) if loss != assumed["name"]]
    better = f"--loss {' or '.join(others)} makes them whole numbers" if others else "no other makes them whole numbers"
    return f"{said}\n(--loss {assumed['name']} was assumed; {better})"
