"""The pictures of text inversion are drawn from plain data, whatever of it there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from sweetspot.reports import text_figures
from sweetspot.reports.text_figures import (
    RIGHT,
    WRONG,
    ablation_panel,
    cumulative_panel,
    detector_panel,
    observations_figure,
    reliability_panel,
)

RANKS = {"right": {"median": [90.0, 0.0], "count": 3}, "wrong": {"median": [80.0, 7.5], "count": 2}}
SPLIT = {"propose": 0.1, "verify": 0.2, "gradient": 0.4, "other": 0.0, "total": 0.7}
DATA: dict[str, Any] = {
    "cumulative_loss": [[0.0, 1e-14], [1e-14, 0.5], [None, None], [0.0, 0.0]],
    "right": [True, False, False, True],
    "curves": {"steps": [1, 2], "loss": [[1.0, 0.1], [], [2.0, None]], "prompts": [4, 0, 2]},
    "ranks": {"steps": [1, 2], **RANKS},
    "failures": {"digits": 1, "other": 0, "tokens": {"digits": 4, "other": 0}},
    "seconds_per_token": SPLIT,
    "detector": {"score": [-14.0, -0.3, None, -45.0], "flagged": [False, True, True, False], "auroc": 1.0},
}
ALL_RIGHT = {
    **DATA,
    "cumulative_loss": [[0.0, 0.0]] * 4,
    "right": [True] * 4,
    "ranks": {**DATA["ranks"], "wrong": {"median": [], "count": 0}},
    "failures": {"digits": 0, "other": 0, "tokens": {"digits": 4, "other": 0}},
    "detector": {"score": [-45.0] * 4, "flagged": [False] * 4, "auroc": None},
}
BLIND = {key: value for key, value in DATA.items() if key not in ("right", "ranks", "failures")}
ROWS = [
    {"name": name, "em": 0.1 * n, "similarity": 0.1 * n + 0.05, "seconds_per_token": 0.1 * n + 0.01}
    for n, name in enumerate("abcdefghi")  # more than there are colours
]
ABLATIONS = {"lr": [{"value": v, "em": 0.5, "similarity": None} for v in (0.01, 1.0)], "clip": [], "metric": []}


def ink(path: Path) -> np.ndarray:
    """Where a picture is not white, (H, W)."""
    return np.asarray((imread(path)[..., :3] < 0.99).any(axis=-1))


TITLES = {
    "ranks": "rank of the true token",
    "curves": "loss by position",
    "cumulative_loss": "cumulative discrete loss",
    "failures": "failures by kind of token",
    "seconds_per_token": "time per token",
    "detector": "failure detector",
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, beside their files."""
    figures: list[Figure] = []
    save = text_figures.save

    def kept(figure: Figure, path: Path) -> None:
        figures.append(figure)
        save(figure, path)

    monkeypatch.setattr(text_figures, "save", kept)
    return figures


def has_data(axes: Any) -> bool:
    """Whether there is a line, a bar or a bin in a panel."""
    lines = [line for line in axes.lines if np.isfinite(np.asarray(line.get_ydata(), dtype=float)).any()]
    return bool(lines or [bar for bar in axes.patches if bar.get_width() and bar.get_height()])


@pytest.mark.parametrize(("data", "wrong"), [(DATA, True), (ALL_RIGHT, False)], ids=["mixed", "all right"])
@pytest.mark.parametrize("name", ["ranks", "curves", "cumulative", "failures", "detector"])
def test_each_picture_shows_its_own_data(
    tmp_path: Path, name: str, data: dict[str, Any], wrong: bool, drawn: list[Figure]
) -> None:
    getattr(text_figures, f"{name}_figure")(data, tmp_path / "one.png")
    axes = drawn[0].axes[0]
    assert axes.get_title().startswith(TITLES["cumulative_loss" if name == "cumulative" else name])
    assert axes.get_xlabel()
    assert has_data(axes) or (name == "failures" and not wrong)
    legend = axes.get_legend()
    if legend is not None:
        labels = {text.get_text().split()[0] for text in legend.get_texts()}
        assert ("wrong" in labels) == wrong, "what is not there has no entry"
    assert [path.name for path in tmp_path.iterdir()] == ["one.png"]
    assert ink(tmp_path / "one.png").any()


@pytest.mark.parametrize(
    "left_out", [(), ("ranks", "curves"), ("ranks", "failures"), ("ranks", "curves", "failures")], ids=" ".join
)
def test_a_page_has_a_panel_for_what_was_seen_and_no_empty_place(
    tmp_path: Path, left_out: tuple[str, ...], drawn: list[Figure]
) -> None:
    data = {key: value for key, value in DATA.items() if key not in left_out}
    observations_figure(data, tmp_path / "one.png")
    panels = [axes for axes in drawn[0].axes if axes.get_title()]
    assert [axes.get_title().split(":")[0] for axes in panels] == [TITLES[key] for key in TITLES if key in data]
    assert all(has_data(axes) for axes in panels)
    spec = panels[0].get_subplotspec()
    assert spec is not None
    rows, columns = spec.get_gridspec().get_geometry()
    assert rows * columns == len(panels)


@pytest.mark.parametrize(
    ("draw", "data"),
    [
        (text_figures.accuracy_figure, ROWS),
        (text_figures.ablations_figure, ABLATIONS),
        (text_figures.time_figure, {"hybrid": SPLIT, "sipit": {**SPLIT, "gradient": 9.0}}),
    ],
)
def test_comparisons_are_written(tmp_path: Path, draw: Callable[[Any, Path], None], data: object) -> None:
    draw(data, tmp_path / "one.png")
    assert ink(tmp_path / "one.png").mean() > 0.01


def test_prompts_are_coloured_by_the_truth_or_by_what_the_detector_says() -> None:
    for data, labels in (
        (DATA, ("right (n = 2)", "wrong (n = 2)")),
        (BLIND, ("not flagged (n = 2)", "flagged (n = 2)")),
    ):
        axes = Figure().subplots()
        cumulative_panel(axes, data)
        colours = {line.get_label(): line.get_color() for line in axes.lines}
        assert [colours[label] for label in labels] == [RIGHT, WRONG]


def test_a_loss_of_zero_is_drawn_below_all_others() -> None:
    axes = Figure().subplots()
    cumulative_panel(axes, DATA)
    heights = [float(y) for line in axes.lines for y in np.asarray(line.get_ydata()) if np.isfinite(y)]
    assert min(heights) == pytest.approx(1e-15)
    assert axes.get_ylim()[0] < 1e-15


def test_the_histogram_holds_every_finite_score() -> None:
    axes = Figure().subplots()
    detector_panel(axes, DATA)
    assert sum(bar.get_height() for bar in axes.patches) == 3  # type: ignore[attr-defined]
    assert axes.get_title().endswith("AUROC 1.000")
    assert axes.get_xlim()[0] > -20  # the score of a loss of 0 does not stretch the axis


@pytest.mark.parametrize(
    ("values", "scale", "ticks"),
    [
        ([1, 10, 100], "log", None),
        ([0, 10, 100], "linear", None),
        ([500, 1000], "linear", None),
        ([True, False], "linear", ["True", "False"]),
        (["l2", "dot"], "linear", ["l2", "dot"]),
        ([1.0, None], "linear", ["1.0", "None"]),
    ],
)
def test_the_axis_of_an_ablation_fits_its_values(values: list[Any], scale: str, ticks: list[str] | None) -> None:
    axes = Figure().subplots()
    ablation_panel(axes, "parameter", [{"value": value, "em": 0.5, "similarity": 0.6} for value in values])
    assert axes.get_xscale() == scale
    if ticks is not None:
        assert [label.get_text() for label in axes.get_xticklabels()] == ticks


BINS = {"probability": [0.2, 0.9], "right": [0.5, 1.0], "count": [2, 8], "error": 0.14}
DOUBTS = {
    "reliability": {"token": BINS, "prompt": {"probability": [], "right": [], "count": [], "error": None}},
    "detector": {"score": [0.1, 0.9, 0.8, 0.0], "confidence": [0.9, 0.1, 0.2, 1.0], "auroc": 0.75},
    "right": [True, False, False, True],
}


def test_reliability_lies_where_probabilities_came_true() -> None:
    axes = Figure().subplots()
    reliability_panel(axes, DOUBTS)
    (points,) = axes.collections  # no prompts, no marks
    np.testing.assert_allclose(np.asarray(points.get_offsets()), [[0.2, 0.5], [0.9, 1.0]])
    legend = axes.get_legend()
    assert legend is not None
    assert "tokens: error 0.140 (n = 10)" in {text.get_text() for text in legend.get_texts()}


def test_the_detector_behind_noise_is_drawn_by_its_probabilities() -> None:
    axes = Figure().subplots()
    detector_panel(axes, DOUBTS)
    assert axes.get_title() == "failure detector: AUROC 0.750"
    assert axes.get_xlabel() == "1 − probability that all tokens are right"
