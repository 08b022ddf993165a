"""SweepConfig: a grid over λ, β and seeds, and on what it runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from errors import UserError
from lightning_modules.defences import PENALTIES
from reports.sweet_spot import MAX_DROP, check_max_drop, check_metric
from runs.config import TrainConfig, check_types

UNDEFENDED: dict[str, Any] = {"defence": "none", "bottleneck": None, "release": [], "options": {}}


@dataclass
class SweepConfig:
    """A grid and its means; everything else about its runs is as `train.py` takes it.

    Args:
        lam: weights of the penalty, the grid's rows; vanilla (0) is always part of a grid.
        beta: what keeps representations apart, the grid's columns.
        seed: one run a seed for each cell; figures are mean and spread over them.
        max_drop: how much of vanilla's accuracy (of perplexity: relative) a sweet spot may cost.
        metric: of recovery; default SSIM for images, similarity for text, cosine similarity for vectors.
        refine: so many more cells around the front, after the grid.
        cpus_per_run: CPU cores, and threads, of a run.
        gpus_per_run: the share of a GPU that a run gets, such as 0.1; default: a whole one, where there are any.
        parallel: at most so many runs at a time; 0: as many as the machine or the cluster has room for.
        address: of a Ray cluster, auto or host:port; default: this machine alone.
        dry_run: list what would run and what is there, and run nothing.
    """

    lam: list[float] = field(default_factory=lambda: [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0])
    beta: list[float] = field(default_factory=lambda: [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
    seed: list[int] = field(default_factory=lambda: [0])
    max_drop: float = MAX_DROP
    metric: str | None = None
    refine: int = 0
    cpus_per_run: int = 1
    gpus_per_run: float | None = None
    parallel: int = 0
    address: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        for flag, values in (("lambda", self.lam), ("beta", self.beta), ("seed", self.seed)):
            check_values(flag, values)
        check_max_drop(self.max_drop)
        for flag, count, least in (
            ("refine", self.refine, 0),
            ("cpus-per-run", self.cpus_per_run, 1),
            ("parallel", self.parallel, 0),
        ):
            if count < least:
                raise UserError(f"--{flag} must be at least {least}; got {count}")
        check_metric(self.metric)
        share = self.gpus_per_run
        if share is not None and not 0 <= share <= 1:
            raise UserError(f"--gpus-per-run must lie between 0 and 1: a run has at most one; got {share:g}")

    def grid(self, common: dict[str, Any]) -> list[TrainConfig]:
        """Every cell as the config of its run: vanilla, then row by row, for each seed.

        Args:
            common: what all runs share, fields of TrainConfig.
        """
        vanilla = cells_of([(0.0, self.beta[0])], self.seed, {**common, **UNDEFENDED})
        defended = cells_of([(lam, beta) for lam in self.lam for beta in self.beta], self.seed, common)
        cells = {repr(dataclasses.asdict(config)): config for config in (*vanilla, *defended)}
        # λ = 0 is the vanilla network, unless the defence also changes what is released: each is there once
        return sorted(cells.values(), key=lambda config: self.seed.index(config.seed))


def check_values(flag: str, values: Sequence[float]) -> None:
    """Refuse an axis that is empty, names a value twice, or has one that no run takes."""
    if not values:
        raise UserError(f"--{flag} needs at least one value: the grid is empty")
    for value in values:
        if not (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0):
            raise UserError(f"--{flag} must be numbers of at least 0; got {value}")
        if list(values).count(value) > 1:
            raise UserError(f"--{flag} names {value:g} twice; every value makes one row or column")


def cells_of(pairs: Sequence[tuple[float, float]], seeds: Sequence[int], common: dict[str, Any]) -> list[TrainConfig]:
    """One config for each (λ, β) and seed; cells that mean the same run, such as UniCon's for every β, once."""
    cells: dict[str, TrainConfig] = {}
    for seed in seeds:
        for lam, beta in pairs:
            has_beta = "beta" in PENALTIES[common.get("defence") or "mixcon"].options
            options = {**common.get("options", {}), **({"beta": float(beta)} if has_beta else {})}
            config = TrainConfig(**{**common, "options": options}, lam=float(lam), seed=int(seed))
            cells.setdefault(repr(dataclasses.asdict(config)), config)
    return list(cells.values())
