"""Where a refinement looks next."""

from __future__ import annotations

import pytest

from reports.cells import Setting
from reports.sweet_spot import sweet_spot
from sweeps.refinement import around, refined
from tests.reports.settings import setting

GRID = [(lam, beta) for lam in (0.1, 1.0, 10.0) for beta in (1e-2, 1e-4)]


@pytest.fixture
def grid() -> Setting:
    """Stronger penalties hide more; accuracy breaks down at λ = 10."""
    figures = {(lam, beta): (0.99 - 0.005 * lam, 0.6 - 0.05 * lam - beta) for lam, beta in GRID}
    return setting({(0.0, 0.0): (0.99, 0.9), **figures})


def test_new_cells_lie_around_the_sweet_spot_first(grid: Setting) -> None:
    verdict = sweet_spot(grid)
    assert verdict.cell is not None
    assert (verdict.cell.defence["lambda"], verdict.cell.defence["beta"]) == (1.0, 1e-2)
    assert refined(grid, verdict, 4) == [(0.316, 1e-2), (3.16, 1e-2), (1.0, 1e-3), (1.0, 0.1)]


def test_no_cell_is_tried_twice_and_no_more_than_asked_for(grid: Setting) -> None:
    many = refined(grid, sweet_spot(grid), 1000)
    assert len(set(many)) == len(many)
    assert not set(many) & set(GRID)
    assert refined(grid, sweet_spot(grid), 3) == many[:3]
    assert refined(grid, sweet_spot(grid), 0) == []


def test_where_only_vanilla_was_made_there_is_nothing_to_refine() -> None:
    alone = setting({(0.0, 0.0): (0.99, 0.9)})
    assert refined(alone, sweet_spot(alone), 5) == []


def test_numbers_at_the_end_of_all_numbers_have_no_neighbours_beyond() -> None:
    assert around(1e300, [1e300]) == [3.16e299, 3.16e300]
    assert around(1e308, [1.0, 1e308]) == [1e154]
