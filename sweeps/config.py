"""SweepConfig: how a sweep searches and judges, and on what it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweetspot.errors import UserError
from sweetspot.reports.criteria import check_max_drop, check_metric
from sweetspot.runs.command_line import spelled
from sweetspot.runs.fields import check_types
from sweetspot.sweeps.axes import Grid, Range


@dataclass
class SweepConfig:
    """What a sweep does with its cells and where; which cells there are is in its grids.

    Args:
        search: try so many cells of the ranges low..high that are given, each chosen by what the others gave. Not
            given: all cells of the lists.
        max_drop: how much of vanilla's accuracy a sweet spot may cost, 0.01 if not given; of perplexity relative, 0.1.
        metric: of recovery; default SSIM for images, similarity for text, cosine similarity for vectors.
        cpus_per_run: CPU cores, and threads, of a run.
        gpus_per_run: the share of a GPU that a run gets, such as 0.1; default: a whole one, where there are any.
        parallel: at most so many runs at a time; 0: as many as the machine or the cluster has room for.
        address: of a Ray cluster, auto or host:port; default: this machine alone.
        dry_run: list what would run and what is there, and run nothing.
        grids: in a --config file: a list of grids, each with flags of its own beside those of the file.
    """

    search: int | None = None
    max_drop: float | None = None
    metric: str | None = None
    cpus_per_run: int = 1
    gpus_per_run: float | None = None
    parallel: int = 0
    address: str | None = None
    dry_run: bool = False
    grids: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_types(self)
        check_max_drop(self.max_drop)
        for flag, count, least in (
            ("search", self.search, 1),
            ("cpus-per-run", self.cpus_per_run, 1),
            ("parallel", self.parallel, 0),
        ):
            if count is not None and count < least:
                raise UserError(f"--{flag} must be at least {least}; got {count}")
        check_metric(self.metric)
        share = self.gpus_per_run
        if share is not None and not 0 <= share <= 1:
            raise UserError(f"--gpus-per-run must lie between 0 and 1: a run has at most one; got {share:g}")
        for each in self.grids:
            if not isinstance(each, dict) or not each:
                raise UserError(
                    f"grids must hold flags by name, such as {{defence: nopeek, lambda: [0.1, 1]}}; got {each}"
                )

    def check_ranges(self, grids: Sequence[Grid], common: Mapping[str, Any]) -> None:
        """Refuse ranges without a search, and a search without what it needs."""
        ranges = [(name, axis) for grid in grids for name, axis in grid.items() if isinstance(axis, Range)]
        if self.search is None:
            for name, axis in ranges:
                flag = spelled(name)
                raise UserError(f"{flag} {axis.low:g}..{axis.high:g} is a range: add --search N, or name its values")
            return
        if not ranges:
            raise UserError("--search needs a range to search in, such as --lambda 1e-4..1e-1; lists alone are a grid")
        if self.grids:
            raise UserError("--search takes one grid: leave grids out of the --config file")
        if isinstance(data := grids[0].get("dataset", []), list) and len(data) > 1:
            raise UserError("--search compares cells on the same data: name one --dataset")
        if common.get("attacks") == ["none"]:
            raise UserError("--search looks for what gives little away: leave --attacks none out")
