"""What a sweep takes, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from sweetspot.errors import UserError
from sweetspot.sweeps.axes import Grid, Range
from sweetspot.sweeps.config import SweepConfig

SEARCHED: Grid = {"lambda": Range(0.1, 10.0)}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_drop": -0.1}, "--max-drop"),
        ({"search": 0}, "--search must be at least 1; got 0"),
        ({"search": -3}, "--search must be at least 1; got -3"),
        ({"cpus_per_run": 0}, "--cpus-per-run must be at least 1"),
        ({"gpus_per_run": 1.5}, "--gpus-per-run must lie between 0 and 1"),
        ({"metric": "beauty"}, "--metric must be one of"),
        ({"grids": ["nopeek"]}, "grids must hold flags by name"),
        ({"grids": [{}]}, "grids must hold flags by name"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        SweepConfig(**fields)


@pytest.mark.parametrize(
    ("config", "grid", "attacks", "says"),
    [
        (SweepConfig(), SEARCHED, ["decoder"], r"--lambda 0.1..10 is a range: add --search N"),
        (SweepConfig(search=4), {"lambda": [1.0, 2.0]}, ["decoder"], "--search needs a range to search in"),
        (SweepConfig(search=4), SEARCHED, ["none"], "leave --attacks none out"),
        (SweepConfig(search=4), {**SEARCHED, "dataset": ["a", "b"]}, ["decoder"], "name one --dataset"),
        (SweepConfig(search=4, grids=[{"lambda": 1}]), SEARCHED, ["decoder"], "--search takes one grid"),
    ],
)
def test_a_range_needs_a_search_and_a_search_a_range(
    config: SweepConfig, grid: Grid, attacks: list[str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        config.check_ranges([grid], {"attacks": attacks})
