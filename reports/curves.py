"""Curves as SVG: what cells come to along one axis, with vanilla across."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from sweetspot.reports.axes import Axis, written
from sweetspot.reports.charts import Scale, tag
from sweetspot.reports.plots import Point, marked, path_through

WIDTH, HEIGHT = 400, 236
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 44
CLOSEST = 36  # pixels between two numbers of an axis


def curve(
    name: str,
    points: Sequence[Point],
    values: Sequence[Any],
    axis: Axis,
    vanilla: Sequence[tuple[Any, float]],
    said: Callable[[float], str],
    is_connected: bool,
) -> Markup:
    """Points along an axis, and vanilla as a dashed line.

    Args:
        name: of what is drawn upwards.
        points: the cells; their x is not looked at.
        values: of the axis at each point.
        axis: to the right.
        vanilla: what vanilla comes to at some values of the axis; empty: it is not known.
        said: how a number upwards is written.
        is_connected: whether the points are one curve.
    """
    across, y = along(axis), upwards([*points], [value for _, value in vanilla])
    parts = []
    for tick in y.ticks(5):
        at = y(tick)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", said(tick), x=LEFT - 8, y=at + 4, text_anchor="end", class_="tick"))
    parts += ticks_of(axis, across)
    parts.append(tag("text", f"{axis.label}{', log scale' * axis.is_log} →", x=WIDTH - RIGHT, y=HEIGHT - 6,
                     text_anchor="end", class_="axis"))  # fmt: skip
    if vanilla:
        line = [(across(value), y(each)) for value, each in sorted(vanilla, key=lambda pair: across(pair[0]))]
        line = [(LEFT, line[0][1]), *line, (WIDTH - RIGHT, line[-1][1])]
        above = line[-1][1] - TOP > 20
        parts.append(tag("path", d=path_through(line), class_="level vanilla"))
        parts.append(tag("text", "vanilla", x=WIDTH - RIGHT - 2, y=line[-1][1] + (-5 if above else 14),
                         text_anchor="end", class_="note"))  # fmt: skip
    placed = sorted(zip(map(across, values), points, strict=True), key=lambda pair: pair[0])
    if is_connected and len(placed) > 1:
        parts.append(
            tag("path", d=path_through((x, y(point.y)) for x, point in placed), class_="family " + points[0].kind)
        )
    parts += [marked(point, x, y) for x, point in placed]
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="group", aria_label=f"{name} along {axis.label}",
               class_="plot curve")  # fmt: skip


def along(axis: Axis) -> Callable[[Any], float]:
    """From a value of an axis to its pixel; words lie at equal distances."""
    start, end = LEFT + 16.0, WIDTH - RIGHT - 24.0
    if not axis.is_numeric:
        step = (end - start) / max(len(axis.values) - 1, 1)
        return lambda value: start + step * axis.values.index(value)
    first, last = axis.values[0], axis.values[-1]
    if first > last:
        start, end = end, start
    return Scale(min(first, last), max(first, last), start, end, "log" if axis.is_log else "linear")


def ticks_of(axis: Axis, across: Callable[[Any], float]) -> list[Markup]:
    """The values of an axis below it; where they lie too close, some of them."""
    parts: list[Markup] = []
    taken = -CLOSEST * 2.0
    for value in axis.values:
        at, text = across(value), written(value)
        if at - taken >= max(CLOSEST, 7 * len(text)):
            taken = at
            parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
            parts.append(tag("text", text, x=at, y=HEIGHT - BOTTOM + 16, text_anchor="middle", class_="tick"))
    return parts


def upwards(points: Sequence[Point], vanilla: Sequence[float]) -> Scale:
    """The axis upwards, with room around what is drawn."""
    every = [each for point in points for each in (point.y - point.dy, point.y + point.dy)] + [*vanilla]
    low, high = min(every), max(every)
    room = 0.1 * max(high - low, 0.01 * abs(high), 1e-6)
    return Scale(low - room, high + room, HEIGHT - BOTTOM, TOP)
