"""A run's pictures are written whole, whatever the run has to show."""

from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from sweetspot.reports.figures import gallery_figure, representations_figure, training_curve

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


def test_what_came_back_stands_below_its_original_the_most_leaked_first(tmp_path: Path) -> None:
    original = torch.linspace(0.1, 0.9, 9).view(9, 1, 1, 1).expand(9, 1, 28, 28)
    most_first = torch.arange(8, -1, -1)
    gallery_figure(original, {"paper": 1 - original}, most_first, tmp_path / "recovered.png", columns=3)
    picture = torch.from_numpy(imread(tmp_path / "recovered.png"))[..., 0]
    rows = []
    for height in (0.35, 0.75):
        greys, lengths = picture[int(height * len(picture))].unique_consecutive(return_counts=True)
        rows.append([round(grey, 1) for grey, length in zip(greys.tolist(), lengths, strict=True) if length > 100])
    assert rows == [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]]
    assert list(tmp_path.iterdir()) == [tmp_path / "recovered.png"]


def test_colours_odd_numbers_and_few_images_are_drawn_too(tmp_path: Path) -> None:
    original = torch.zeros(2, 3, 8, 12)
    original[:, 0] = 1.0
    broken = torch.full_like(original, torch.nan)
    gallery_figure(original, {"a/b": broken}, torch.tensor([1, 0]), tmp_path / "recovered.png")
    pixels = torch.from_numpy(imread(tmp_path / "recovered.png"))[..., :3]
    for colour in ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0)):
        assert (pixels == torch.tensor(colour)).all(dim=-1).sum() > 10_000, "red originals, black answers"
