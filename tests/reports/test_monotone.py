"""The paper's claims, counted over pairs of cells."""

from __future__ import annotations

import pytest

from sweetspot.reports.monotone import monotone_claims
from tests.reports.settings import setting


def test_pairs_that_differ_in_one_parameter_are_counted() -> None:
    grid = setting(
        {
            (0, 0): (0.99, 0.9),
            (1, 1e-2): (0.99, 0.8), (1, 1e-3): (0.99, 0.7), (1, 1e-4): (0.99, 0.75),
            (10, 1e-2): (0.98, 0.5), (10, 1e-3): (0.97, 0.4), (10, 1e-4): (0.96, 0.3),
        }
    )  # fmt: skip
    smaller_beta, larger_lambda = monotone_claims(grid)
    assert (smaller_beta.holds, smaller_beta.pairs) == (5, 6)  # at λ = 1 from 1e-3 to 1e-4 more comes back
    assert [pair[:2] for pair in smaller_beta.broken] == [("MixCon(1, 1e-3)", "MixCon(1, 1e-4)")]
    assert (larger_lambda.holds, larger_lambda.pairs) == (3, 3)
    assert larger_lambda.change == pytest.approx((0.5 - 0.8 + 0.4 - 0.7 + 0.3 - 0.75) / 3)


def test_a_grid_without_such_pairs_makes_no_claim() -> None:
    assert monotone_claims(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.98, 0.5)})) == []
