"""The pictures and the table of gradient inversion are drawn from plain data, whatever of it there is."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

from sweetspot.reports.gradient_figures import (
    Curves,
    dimension_figure,
    samples_figure,
    slope,
    sources_figure,
    width_figure,
)
from sweetspot.reports.gradient_tables import gradient_table, labels_of

CURVES: Curves = {"tensor only": [(10, 0.1), (40, 0.2)], "polished": [(10, 0.0), (40, 1e-14)]}


def ink(path: Path) -> np.ndarray:
    """Where a picture is not white, (H, W)."""
    return np.asarray((imread(path)[..., :3] < 0.99).any(axis=-1))


@pytest.mark.parametrize("draw", [dimension_figure, sources_figure, width_figure])
@pytest.mark.parametrize("curves", [CURVES, {"one": [(10, 0.1)]}, {}], ids=["two", "one point", "nothing"])
def test_errors_are_drawn(draw: Any, curves: Curves, tmp_path: Path) -> None:
    draw(curves, tmp_path / "figure.png", "x² + x³")
    assert ink(tmp_path / "figure.png").any()
    assert [each.name for each in tmp_path.iterdir()] == ["figure.png"], "nothing is left beside it"


def test_the_slope_is_that_of_a_straight_line_in_logarithms() -> None:
    assert slope([(m, 3.0 * m**-0.5) for m in (1000, 3000, 64000)]) == pytest.approx(-0.5)
    assert slope([(1000, 0.1)]) is None
    assert slope(CURVES["polished"]) is None, "rounding has no slope"


def test_images_stand_below_their_originals_and_look_like_them(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.rand(2, 64, generator=generator)
    true = true / true.norm(dim=1, keepdim=True)
    samples_figure({"polished": true.clone()}, tmp_path / "same.png", true, (1, 8, 8))
    picture = imread(tmp_path / "same.png")[..., 0]
    assert picture.min() < 0.3, "a unit vector's small entries are shown on a scale of their own"
    samples_figure({"polished": torch.zeros(2, 64)}, tmp_path / "nothing.png", true, (1, 8, 8))
    assert imread(tmp_path / "nothing.png")[..., :3].mean() < imread(tmp_path / "same.png")[..., :3].mean()


@pytest.mark.parametrize("shape", [(3, 4, 4), ()], ids=["colour", "vectors"])
@pytest.mark.parametrize("has_truth", [True, False])
def test_samples_are_drawn_without_a_truth_and_with_nan(
    shape: tuple[int, ...], has_truth: bool, tmp_path: Path
) -> None:
    x = torch.randn(12, 48, generator=torch.Generator().manual_seed(0))
    broken = x.clone()
    broken[0, 0] = torch.nan
    stages = {"tensor only": broken, "polished": x}
    samples_figure(stages, tmp_path / "samples.png", x if has_truth else None, shape)
    assert ink(tmp_path / "samples.png").any()


def results(**changed: Any) -> dict[str, Any]:
    row = {"x": [[1.0]], "y": [1.0, -1.0], "residual": 1e-14, "rms": 3e-14, "worst": 5e-14}
    row |= {"labels_right": 1.0, "label_error": [1e-12, 1e-13]}
    network = {"activation": "leaky-relu", "width": 5000, "dim": 784, "depth": 4, "bias": 30.0}
    return {
        "network": network,
        "data": {"name": "mnist", "batch": 2},
        "config": {"clip": None, "noise": 0.01, "prune": 0.5},
        "verdict": "exact",
        "residual": 1e-14,
        "unknown": ["scale"],
        "recovered": {"tensor": row | {"rms": 0.1234}, "polished": row},
        "seconds": {"client": 0.1, "subspace": 0.1, "tensor": 0.2, "polish": 0.3, "attack": 0.6},
        "truth": {},
        **changed,
    }


def printed(data: dict[str, Any]) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    gradient_table(data, console)
    return console.export_text()


def test_the_table_fits_eighty_columns_and_says_what_counts() -> None:
    shown = printed(results())
    assert "leaky-relu, m = 5000, d = 784, B = 2, 4 layers, noise 0.01, prune" in shown
    assert "0.12" in shown
    assert "3e-14" in shown
    assert "exact: only the true batch" in shown
    assert "a sample's norm" in shown
    assert "0.60 s (subspace 0.10, tensor 0.20, polish 0.30)" in shown
    assert "…" not in shown, "nothing is cut off"


def test_without_the_truth_the_labels_stand_where_errors_would() -> None:
    blind = results()
    del blind["truth"]
    assert "1, -1" in printed(blind)
    assert labels_of({"y": [2.0] * 9}).endswith("2, …")


def test_the_tensor_stage_alone_gets_no_verdict() -> None:
    alone = results()
    del alone["recovered"]["polished"]
    assert "leave --tensor-only out" in printed(alone)
