"""Pairwise distances against SciPy's."""

import pytest
import torch
from scipy.spatial.distance import pdist

from errors import UserError
from lightning_modules.separability import SAMPLES, pairwise_distances, separability


def test_distances_equal_scipys() -> None:
    z = torch.randn(50, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    expected = pdist(z.flatten(1).numpy().astype("float64"))
    result = separability(z)
    assert result["raw"] == pytest.approx(
        {"min": expected.min(), "mean": expected.mean(), "max": expected.max()}, rel=1e-9
    )
    unit = pdist(torch.nn.functional.normalize(z.flatten(1).double()).numpy())
    assert {k: result[k] for k in ("min", "mean", "max")} == pytest.approx(
        {"min": unit.min(), "mean": unit.mean(), "max": unit.max()}, rel=1e-5
    )


def test_a_close_pair_is_seen_among_far_ones() -> None:
    z = torch.randn(100, 50) * 100
    z[1] = z[0] + 1e-3 / 50**0.5
    assert pairwise_distances(z)["min"] == pytest.approx(1e-3, rel=0.05)


def test_it_looks_at_a_bounded_number_and_refuses_a_single_one() -> None:
    assert separability(torch.randn(SAMPLES + 10, 2))["samples"] == SAMPLES
    with pytest.raises(UserError, match="at least 2"):
        pairwise_distances(torch.randn(1, 2))
