"""A grid: what is in it, and what cannot be one."""

from __future__ import annotations

from typing import Any

import pytest

from errors import UserError
from sweeps.config import SweepConfig

COMMON: dict[str, Any] = {"dataset": "mnist-5k"}


def pairs(config: SweepConfig, **common: Any) -> list[tuple[float, float, int]]:
    return [(cell.weight, cell.defence_record()["beta"], cell.seed) for cell in config.grid({**COMMON, **common})]


@pytest.mark.parametrize("lam", [[1.0, 10.0], [0.0, 1.0, 10.0]])
def test_vanilla_is_part_of_every_grid_once(lam: list[float]) -> None:
    cells = pairs(SweepConfig(lam=lam, beta=[1e-2, 1e-4]))
    assert cells == [(0, 0, 0), (1, 1e-2, 0), (1, 1e-4, 0), (10, 1e-2, 0), (10, 1e-4, 0)]


def test_every_cell_has_every_seed() -> None:
    cells = pairs(SweepConfig(lam=[1.0], beta=[1e-2], seed=[3, 5]))
    assert cells == [(0, 0, 3), (1, 1e-2, 3), (0, 0, 5), (1, 1e-2, 5)]


def test_a_defence_without_beta_has_one_cell_for_all_of_them() -> None:
    cells = pairs(SweepConfig(lam=[0.5, 1.0], beta=[1e-2, 1e-4]), defence="unicon")
    assert [lam for lam, _, _ in cells] == [0, 0.5, 1]


def test_the_papers_grid_is_the_default() -> None:
    assert len(pairs(SweepConfig())) == 8 * 7 + 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lam": []}, "--lambda needs at least one value"),
        ({"beta": []}, "the grid is empty"),
        ({"seed": []}, "--seed needs"),
        ({"lam": [1.0, 0.1, 1.0]}, "--lambda names 1 twice"),
        ({"beta": [1e-4, 1e-4]}, "--beta names 0.0001 twice"),
        ({"lam": [-1.0]}, "at least 0; got -1"),
        ({"lam": [float("nan")]}, "at least 0; got nan"),
        ({"max_drop": -0.1}, "--max-drop"),
        ({"refine": -1}, "--refine must be at least 0"),
        ({"cpus_per_run": 0}, "--cpus-per-run must be at least 1"),
        ({"gpus_per_run": 1.5}, "--gpus-per-run must lie between 0 and 1"),
        ({"metric": "beauty"}, "--metric must be one of"),
    ],
)
def test_what_is_no_grid_is_said_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        SweepConfig(**fields)
