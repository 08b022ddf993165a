"""A run's pictures are written whole, whatever the run has to show."""

from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from sweetspot.reports.figures import representations_figure, training_curve

EPOCH = {"epoch": 0, "train/loss": 1.0, "train/accuracy": 0.5}


@pytest.mark.parametrize(
    ("history", "panels"),
    [
        ([EPOCH], 2),
        ([{**EPOCH, "val/loss": 1.0, "val/accuracy": 0.4}, {**EPOCH, "epoch": 1}], 2),
        ([{**EPOCH, "train/mixcon": 0.3}, {**EPOCH, "epoch": 1, "train/mixcon": 0.1}], 3),
    ],
)
def test_a_panel_for_every_quantity(tmp_path: Path, history: list[dict[str, float]], panels: int) -> None:
    training_curve(history, tmp_path / "training.png")
    height, width, _ = imread(tmp_path / "training.png").shape
    assert width / height == pytest.approx(panels * 4.2 / 3.2, rel=0.02)
    assert [path.name for path in tmp_path.iterdir()] == ["training.png"]


def test_both_classes_are_drawn_in_their_colours(tmp_path: Path) -> None:
    z, y = torch.randn(40, 2), torch.arange(40) % 2
    representations_figure({"before": (z, y), "after": (z / 2, y)}, tmp_path / "representations.png")
    pixels = {
        tuple(p) for p in (imread(tmp_path / "representations.png")[..., :3] * 255).round().astype(int).reshape(-1, 3)
    }
    assert any(b > 150 and r < 90 for r, _, b in pixels), "blue points"
    assert any(r > 200 and b < 90 for r, _, b in pixels), "orange points"
