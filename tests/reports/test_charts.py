"""What the charts show: numbers where they belong, marks for what is missing, text that can be read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from sweetspot.reports.axes import Axis, axis_of
from sweetspot.reports.charts import ColourBar, Scale, Square, colour, heat_map, ink, luminance, tag
from sweetspot.reports.curves import curve
from sweetspot.reports.families import SHAPES
from sweetspot.reports.plots import Chain, Level, Point, loss_lines, trade_off

LAMBDA, BETA = axis_of("lambda", [0.1, 1.0]), axis_of("beta", [1e-4, 1e-2])


def point(x: float, y: float, label: str = "MixCon(1, 0.01)", **more: object) -> Point:
    fields: dict[str, object] = {"dx": 0.0, "dy": 0.0, "cell": "s0c1", "tip": label, "kind": "f0", "named": True}
    fields["shape"] = SHAPES[0]
    return Point(x=x, y=y, label=label, **{**fields, **more})  # type: ignore[arg-type]


def test_text_from_outside_is_escaped_in_elements_and_attributes() -> None:
    made = str(tag("text", "<script>", title='"><script>'))
    assert "<script>" not in made
    assert ElementTree.fromstring(made).attrib["title"] == '"><script>'


def test_numbers_on_every_colour_of_the_ramp_can_be_read() -> None:
    for step in range(101):
        rgb = colour(step / 100)
        text = 1.0 if ink(rgb) == "#fff" else 0.0
        light, dark = sorted((luminance(rgb), text), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # what WCAG asks for


def test_the_ramp_is_ordered_by_lightness() -> None:
    lights = [luminance(colour(step / 50)) for step in range(51)]
    assert lights == sorted(lights)


def test_a_heat_map_of_an_irregular_grid_leaves_hatched_gaps() -> None:
    squares = [Square(0, 0, 0.5, "0.500", "a", "s0c1"), Square(1, 1, 0.2, "0.200", "b", "s0c2")]
    bar = ColourBar.of([0.5, 0.2], 0.9)
    drawn = ElementTree.fromstring(str(heat_map("SSIM", squares, LAMBDA, BETA, bar)))
    assert len(drawn.findall(".//rect[@class='gap']")) == 2
    ticks = [each.text for each in drawn.iter("text") if each.get("class") == "tick"]
    assert ticks[:4] == ["0.1", "1", "0.01", "1e-4"], "λ grows down, β falls to the right"
    assert "vanilla 0.900" in "".join(drawn.itertext())


def test_words_beside_a_map_have_room() -> None:
    cuts = axis_of("cut", ["features.denseblock1", "features.denseblock2"])
    bar = ColourBar.of([0.5])
    drawn = ElementTree.fromstring(str(heat_map("SSIM", [Square(0, 0, 0.5, "", "")], cuts, cuts, bar)))
    for each in drawn.iter("text"):
        if each.get("text-anchor") == "end":
            assert float(each.attrib["x"]) >= 6 * len(each.text or "")
    middles = sorted(float(each.attrib["x"]) for each in drawn.iter("text") if each.get("text-anchor") == "middle")
    assert middles[1] - middles[0] >= 6 * len("features.denseblock1")


def test_an_empty_map_names_the_places_that_squares_move_to() -> None:
    squares = [Square(1, 0, 0.5, "0.500", "a", "s0c1", "m0-s0c1")]
    bar = ColourBar.of([0.5])
    full, empty = (str(heat_map("a", squares, LAMBDA, BETA, bar, True, each)) for each in (False, True))
    place = re.search(r'class="square value"[^>]*transform="([^"]*)"', full)
    slot = re.search(r'data-slot="m0-s0c1" transform="([^"]*)"', empty)
    assert place is not None
    assert slot is not None
    assert place[1] == slot[1]
    assert "0.500" not in empty


def test_a_failed_cell_says_why_and_cannot_be_chosen() -> None:
    squares = [Square(1, 0, None, "✕", "failed: no <memory>")]
    drawn = ElementTree.fromstring(str(heat_map("SSIM", squares, LAMBDA, BETA, ColourBar.of([]))))
    square = next(each for each in drawn.iter("g") if "square" in each.get("class", ""))
    assert square.findtext("title") == "failed: no <memory>"
    assert "data-cell" not in square.attrib


def test_one_collapsed_cell_leaves_the_others_their_colours() -> None:
    betas, values = axis_of("beta", [1e-2, 1e-4, 1e-6]), (98.0, 95.0, 10.0)
    squares = [Square(0, column, value, "", "", f"s0c{value}") for column, value in enumerate(values)]
    bars = [ColourBar.of(values, 98.5, 2, limits) for limits in (None, (88.5, 100.0))]
    plain, limited = (str(heat_map("accuracy", squares, LAMBDA, betas, bar)) for bar in bars)
    fills = [re.findall(r'style="fill:rgb\((\d+),(\d+),(\d+)\)', text)[:3] for text in (plain, limited)]
    apart = [sum(abs(int(a) - int(b)) for a, b in zip(*each[:2], strict=True)) for each in fills]
    assert apart[1] > 5 * apart[0]
    assert "≤ 88.50" in limited


@pytest.mark.parametrize(
    ("scale", "smaller", "larger"),
    [
        (Scale(0, 1, 0, 100), 0.2, 0.8),
        (Scale(1, 1000, 0, 100, "log"), 10, 100),
        (Scale(0.1, 0.999, 0, 100, "error"), 0.98, 0.99),
    ],
)
def test_a_scale_keeps_order_and_its_ticks_inside(scale: Scale, smaller: float, larger: float) -> None:
    assert scale(smaller) < scale(larger)
    ticks = scale.ticks()
    assert len(ticks) >= 2
    assert all(-1e-6 <= scale(tick) <= 100 + 1e-6 for tick in ticks)


def test_by_what_is_missing_98_and_99_percent_lie_apart_although_one_cell_collapsed() -> None:
    scale = Scale(0.1, 0.999, 0, 100, "error")
    assert scale(0.99) - scale(0.98) > 5


def test_the_plot_has_a_point_a_cell_bars_for_seeds_and_named_lines() -> None:
    points = [point(0.98, 0.9, "Vanilla", kind="none"), point(0.975, 0.2, best=True, dx=0.001, dy=0.02)]
    levels = [Level(0.25, "no picture up to 0.25", "limit")]
    chains = [Chain("family f1", [(0.98, 0.9), (0.975, 0.2)])]
    drawn = ElementTree.fromstring(
        str(trade_off(points, [(0.98, 0.9), (0.975, 0.2)], "accuracy", "SSIM", False, 0.97, levels, chains))
    )
    classes = [each.get("class", "") for each in drawn.iter()]
    assert sum(name.startswith("point ") for name in classes) == 2
    assert classes.count("spread") == 2
    assert {"band", "front", "level limit", "point f0 best", "family f1"} <= set(classes)
    assert "no picture up to 0.25" in "".join(drawn.itertext())


def test_labels_that_would_overlap_are_left_to_pointing() -> None:
    points = [point(0.98 + 1e-6 * k, 0.5 + 1e-6 * k, f"MixCon(1, {k})") for k in range(40)]
    drawn = ElementTree.fromstring(str(trade_off(points, [], "accuracy", "SSIM")))
    labels = [each for each in drawn.iter("text") if each.get("class") == "label"]
    assert 1 <= len(labels) < 12
    places = sorted((float(each.attrib["y"]), float(each.attrib["x"])) for each in labels)
    assert len(set(places)) == len(places)


def test_perplexity_is_better_to_the_right() -> None:
    points = [point(100, 0.9, cell="low"), point(1000, 0.2, cell="high")]
    drawn = ElementTree.fromstring(str(trade_off(points, [], "perplexity", "similarity", True)))
    x = {each.attrib["data-cell"]: float(each.find("circle").attrib["cx"])  # type: ignore[union-attr]
         for each in drawn.iter("g") if "data-cell" in each.attrib}  # fmt: skip
    assert x["low"] > x["high"]


@pytest.mark.parametrize("points", [[point(0.5, 0.5)], [point(1.0, 1.0), point(0.1, 0.0)], [point(0.9, -0.2)]])
def test_one_cell_and_extreme_values_are_drawn(points: list[Point]) -> None:
    text = str(trade_off(points, [(p.x, p.y) for p in points], "accuracy", "cosine similarity"))
    assert "nan" not in text
    assert "inf" not in text


def curve_places(axis: Axis, values: list[object], **more: object) -> list[float]:
    """Where the points of a curve lie, from left to right of the page, in the order of the values."""
    points = [point(0, 0.1 * n, cell=f"s0c{n}") for n in range(len(values))]
    options: dict[str, object] = {"vanilla": [(axis.values[0], 0.9)], "is_connected": True, **more}
    text = str(curve("leak", points, values, axis, said=str, **options))  # type: ignore[arg-type]
    drawn = ElementTree.fromstring(text)
    assert "nan" not in text
    at = {each.attrib["data-cell"]: float(each.find("circle").attrib["cx"])  # type: ignore[union-attr]
          for each in drawn.iter("g") if "data-cell" in each.attrib}  # fmt: skip
    return [at[f"s0c{n}"] for n in range(len(values))]


def test_a_curve_runs_from_the_weak_to_the_strong_and_by_logarithm_where_values_lie_far_apart() -> None:
    one, two, three = curve_places(axis_of("sigma", [0.1, 1.0, 10.0]), [0.1, 1.0, 10.0])
    assert three - two == pytest.approx(two - one, abs=0.1)
    large, small = curve_places(axis_of("beta", [1e-4, 1e-2]), [1e-2, 1e-4])
    assert large < small
    words = curve_places(axis_of("bottleneck", ["none", "16", "120-16"]), ["none", "16", "120-16"])
    assert words == sorted(words)


def test_vanilla_lies_across_a_curve() -> None:
    sigma = axis_of("sigma", [1.0, 2.0])
    points = [point(0, 0.5), point(0, 0.1)]
    drawn = ElementTree.fromstring(str(curve("leak", points, [1.0, 2.0], sigma, [(1.0, 0.9), (2.0, 0.9)], str, True)))
    (line,) = [each.attrib["d"] for each in drawn.iter("path") if each.get("class") == "level vanilla"]
    assert len({pair.split()[1] for pair in line[1:].split("L")}) == 1
    assert "vanilla" in "".join(drawn.itertext())


def test_losses_of_zero_and_gaps_in_them_are_drawn() -> None:
    text = str(loss_lines([[0.0, None, 1e-3], [0.0, 1e-14, 2e-14]], [False, True]))
    assert text.count("<path") == 2
    assert "loss wrong" in text
    assert str(loss_lines([[0.0, 0.0]], [True])) == ""
