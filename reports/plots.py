"""Plots as SVG: utility against recovery, and losses along a prompt."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sweetspot.reports.charts import Scale, tag

Box = tuple[float, float, float, float]  # left, top, right, bottom
WIDTH, HEIGHT = 640, 400
NARROW, SHORT = 440, 210  # of the losses, which stand in a panel
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 20, 46
AROUND = 13  # pixels around a point that belong to it: a label in them would be taken for its own
DIAMOND = "M0 -7l7 7l-7 7l-7 -7z"  # vanilla
STAR = "M0 -10l2.9 6.1 6.7 .8 -4.9 4.6 1.3 6.6 -6 -3.3 -6 3.3 1.3 -6.6 -4.9 -4.6 6.7 -.8z"


@dataclass(frozen=True)
class Point:
    """One cell in the plot of utility against recovery.

    Args:
        x: utility.
        y: recovery.
        dx: standard deviation over seeds of x; 0: no bar.
        dy: of y.
        cell: the id that choosing it chooses.
        label: what may stand beside it.
        tip: what is said where somebody points at it.
        kind: the class of its family, none for vanilla.
        shape: the outline of its mark.
        best: whether it is the sweet spot.
        named: whether its label should stand beside it where there is room.
        spared: whether it went through fewer attacks than others, so that it is drawn hollow.
    """

    x: float
    y: float
    dx: float
    dy: float
    cell: str
    label: str
    tip: str
    kind: str
    shape: str
    best: bool = False
    named: bool = False
    spared: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line: at a recovery, with its name, drawn in a style (limit, floor)."""

    y: float
    name: str
    style: str


@dataclass(frozen=True)
class Chain:
    """Points that are connected, and the class of their line."""

    kind: str
    points: Sequence[tuple[float, float]]


def trade_off(
    points: Sequence[Point],
    front: Sequence[tuple[float, float]],
    x_name: str,
    y_name: str,
    falling: bool = False,
    enough: float | None = None,
    levels: Sequence[Level] = (),
    chains: Iterable[Chain] = (),
) -> Markup:
    """Every cell's utility (better to the right) against what comes back (better below).

    Args:
        points: the cells.
        front: the Pareto front, from the most useful on.
        x_name: of the utility.
        y_name: of the recovery.
        falling: whether smaller utilities are better, as for perplexity.
        enough: the utility from which on a cell is useful enough; None: nothing to compare with.
        levels: lines across.
        chains: points to connect: the front of each family, channels behind one network.
    """
    x, y = x_scale(points, falling, enough), y_scale(points, levels)
    parts = [*frame(x, y, x_name, y_name, falling)]
    if enough is not None:
        edge = x(enough)
        parts.append(
            tag("rect", x=edge, y=TOP, width=WIDTH - RIGHT - edge, height=HEIGHT - TOP - BOTTOM, class_="band")
        )
        parts.append(tag("text", "useful enough", x=WIDTH - RIGHT, y=TOP - 6, text_anchor="end", class_="note"))
    chains = list(chains)
    lines = [[(x(a), y(b)) for a, b in line] for line in (front, *(chain.points for chain in chains))]
    for level in levels:
        at = y(level.y)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_=f"level {level.style}"))
    if len(front) > 1:
        parts.append(tag("path", d=path_through(lines[0]), class_="front"))
    for chain, line in zip(chains, lines[1:], strict=True):
        parts.append(tag("path", d=path_through(line), class_=chain.kind))
    ordered = sorted(points, key=lambda point: point.best or point.kind == "none")
    parts += [marked(point, x(point.x), y, x) for point in ordered]
    parts += lettering(points, levels, lines, x, y)
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="group", aria_label=f"{y_name} against {x_name}",
               class_="plot")  # fmt: skip


def lettering(
    points: Sequence[Point], levels: Sequence[Level], lines: Sequence[Sequence[tuple[float, float]]], x: Scale, y: Scale
) -> list[Markup]:
    """The names of the levels and the labels of the points, off all marks and, where there is room, off all lines."""
    parts = []
    marks: list[Box] = [(x(p.x) - AROUND, y(p.y) - AROUND, x(p.x) + AROUND, y(p.y) + AROUND) for p in points]
    everything = [*marks, *(box for line in lines for box in boxes_along(line))]
    for level in levels:
        text, box = name_of(level, y(level.y), everything)
        parts.append(text)
        marks.append(box)
        everything += [box, (LEFT, y(level.y) - 1, WIDTH - RIGHT, y(level.y) + 1)]
    for point in sorted((each for each in points if each.named), key=lambda each: (not each.best, each.kind != "none")):
        found = room_for(point, x(point.x), y(point.y), everything) or room_for(point, x(point.x), y(point.y), marks)
        if found is not None:
            parts.append(tag("text", point.label, x=found[0] + 2, y=found[1] + 11, class_="label"))
            marks.append(found)
            everything.append(found)
    return parts


def x_scale(points: Sequence[Point], falling: bool, enough: float | None) -> Scale:
    """The axis of utility: percent or, where most of them are close to 100, by what is missing; perplexity by log."""
    values = [each for p in points for each in (p.x - p.dx, p.x + p.dx)] + ([enough] if enough is not None else [])
    low, high = min(values), max(values)
    if falling:
        low = max(low, min(p.x for p in points) / 2)  # a deviation as large as the mean has no logarithm
        return Scale(low / 1.08, high * 1.08, WIDTH - RIGHT, LEFT, "log")
    high = min(high, 1.0)
    if (1 - low) > 4 * max(1 - high, 1e-4) and high > 0.9:
        return Scale(1 - min((1 - low) * 1.15, 1.0), 1 - max(1 - high, 1e-4) / 1.25, LEFT, WIDTH - RIGHT, "error")
    room = 0.06 * max(high - low, 0.005)
    return Scale(low - room, min(high + room, 1.0), LEFT, WIDTH - RIGHT)


def y_scale(points: Sequence[Point], levels: Sequence[Level]) -> Scale:
    """The axis of recovery, from 0 where the numbers are of that kind."""
    values = [each for p in points for each in (p.y - p.dy, p.y + p.dy)] + [level.y for level in levels]
    low, high = min(values), max(values)
    room = 0.08 * max(high - low, 0.02)
    low = 0.0 if 0 <= low < 0.6 * high else low - room
    high = 1.02 if 0.9 < high <= 1.0 else high + room
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def frame(x: Scale, y: Scale, x_name: str, y_name: str, falling: bool) -> list[Markup]:
    """Grid lines, their numbers, and the names of both axes."""
    parts = []
    for value in x.ticks(7):
        at = x(value)
        said = f"{value:g}" if falling else f"{round(100 * value, 4):g} %"
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"))
        parts.append(tag("text", said, x=at, y=HEIGHT - BOTTOM + 16, text_anchor="middle", class_="tick"))
    for value in y.ticks():
        at = y(value)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", f"{round(value, 6):g}", x=LEFT - 8, y=at + 4, text_anchor="end", class_="tick"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    scale = {"log": ", log scale", "error": ", log scale of the error"}.get(x.kind, "")
    parts.append(
        tag("text", f"{x_name}{scale}  (better →)", x=WIDTH - RIGHT, y=HEIGHT - 8, text_anchor="end", class_="axis")
    )
    parts.append(tag("text", f"{y_name}  (← better)", x=-middle, y=14, text_anchor="middle", transform="rotate(-90)",
                     class_="axis"))  # fmt: skip
    return parts


def name_of(level: Level, at: float, used: Sequence[Box]) -> tuple[Markup, Box]:
    """The name of a horizontal line, at the end and on the side of it where least is in the way, and its box."""
    long = 6.0 * len(level.name)
    # held at its own end, so that larger letters, on a phone, do not push it out of the plot
    ends = {"start": LEFT + 6, "end": WIDTH - RIGHT - 6 - long, "middle": (LEFT + WIDTH - RIGHT - long) / 2}
    places = {(left, top, left + long, top + 13): anchor for anchor, left in ends.items() for top in (at - 16, at + 3)}
    box = min(places, key=lambda place: sum(overlap(place, other) for other in used))
    anchor = places[box]
    x = {"start": box[0], "end": box[2], "middle": (box[0] + box[2]) / 2}[anchor]
    return tag("text", level.name, x=x, y=box[1] + 11, text_anchor=anchor, class_=f"note {level.style}"), box


def boxes_along(line: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes along a line, so that names keep off it."""
    boxes = []
    for (a, b), (c, d) in itertools.pairwise(line):
        steps = max(1, round(max(abs(c - a), abs(d - b)) / 8))
        for k in range(steps + 1):
            x, y = a + (c - a) * k / steps, b + (d - b) * k / steps
            boxes.append((x - 1, y - 1, x + 1, y + 1))
    return boxes


def marked(point: Point, at_x: float, y: Scale, x: Scale | None = None) -> Markup:
    """A point with its bars over seeds.

    Args:
        point: the cell.
        at_x: where it lies, in pixels.
        y: the axis upwards.
        x: the axis to the right, where it is of utility, which has a bar too.
    """
    at_y = y(point.y)
    bars = []
    if point.dx and x is not None:
        bars.append(tag("line", x1=x(point.x - point.dx), x2=x(point.x + point.dx), y1=at_y, y2=at_y, class_="spread"))
    if point.dy:
        bars.append(tag("line", x1=at_x, x2=at_x, y1=y(point.y - point.dy), y2=y(point.y + point.dy), class_="spread"))
    return tag(
        "g",
        tag("title", point.tip),
        *bars,
        tag("circle", cx=at_x, cy=at_y, r=12.0, class_="target"),
        tag("path", d=STAR if point.best else point.shape, transform=f"translate({at_x:.1f} {at_y:.1f})",
            class_="shape"),
        class_=f"point {point.kind}{' best' * point.best}{' spared' * point.spared}",
        data_cell=point.cell, tabindex=0, role="button", aria_label=point.tip,
    )  # fmt: skip


def leak_scale(vanilla: float, best: tuple[str, float] | None, limit: float, floor: str = "the label") -> Markup:
    """The scale of leak, from what the floor alone gives back (0) to everything (1), with vanilla and a cell on it.

    Args:
        vanilla: its leak.
        best: the label and the leak of the verdict's cell, where there is one.
        limit: the largest leak that counts as none.
        floor: what gives back 0.
    """
    wide, high, left, right, y = 460, 104, 16, 16, 52
    x = Scale(min(0.0, vanilla, best[1] if best else 0.0), 1.0, left, wide - right)
    parts = [
        tag("rect", x=x(x.low), y=y - 4, width=x(limit) - x(x.low), height=8.0, class_="small"),
        tag("rect", x=x(limit), y=y - 4, width=x(1.0) - x(limit), height=8.0, class_="large"),
    ]
    for value in (0.0, limit, 1.0):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=y - 7, y2=y + 7, class_="edge"))
        anchor = "start" if value == 0 else "end" if value == 1 else "middle"
        parts.append(tag("text", f"{value:g}", x=x(value), y=y + 22, text_anchor=anchor, class_="tick"))
    parts.append(tag("text", f"{floor} alone", x=x(0.0), y=y + 40, class_="note"))
    parts.append(tag("text", "everything", x=x(1.0), y=y + 40, text_anchor="end", class_="note"))
    marks = [("vanilla", vanilla, "none", DIAMOND), *([("this cell", best[1], "best", STAR)] if best else [])]
    near = best is not None and abs(x(best[1]) - x(vanilla)) < 110  # then one of the two names would cover the other
    for number, (name, value, kind, shape) in enumerate(marks):
        at, above = x(min(value, 1.0)), y - (34 if near and number else 16)
        anchor = "start" if at < left + 40 else "end" if at > wide - right - 40 else "middle"
        text = f"{name} {value:.2f}".replace("-", "−")
        parts.append(tag("text", text, x=at, y=above, text_anchor=anchor, class_="label"))
        drawn = tag("path", d=shape, transform=f"translate({at:.1f} {y})", class_="shape")
        parts.append(tag("g", drawn, class_=kind))
    said = f"leak of vanilla {vanilla:.2f}" + (f", of {best[0]} {best[1]:.2f}" if best else "")
    return tag("svg", *parts, viewBox=f"0 0 {wide} {high}", width=wide, role="img", aria_label=said, class_="scale")


def room_for(point: Point, x: float, y: float, used: Sequence[Box]) -> Box | None:
    """The box of a point's label at the first side of it where nothing else is; None where there is no such side."""
    long = 6.4 * len(point.label) + 4
    for left, top in (
        (x + 14, y - 7), (x - 14 - long, y - 7), (x - long / 2, y - 28), (x - long / 2, y + 14),
        (x + 8, y - 28), (x + 8, y + 14), (x - 8 - long, y - 28), (x - 8 - long, y + 14),
    ):  # fmt: skip
        box = (left, top, left + long, top + 14)
        inside = left >= LEFT and left + long <= WIDTH - RIGHT and top >= TOP and top + 14 <= HEIGHT - BOTTOM
        if inside and not any(overlap(box, other) for other in used):
            return box
    return None


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share any ground."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def path_through(points: Iterable[tuple[float, float]]) -> str:
    """Straight lines from point to point."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def loss_lines(losses: Sequence[Sequence[float | None]], right: Sequence[bool]) -> Markup:
    """The cumulative discrete loss over positions, a line for each prompt: dashed where the prompt came back wrong.

    Args:
        losses: for each prompt, at each position.
        right: whether each prompt came back right.
    """
    known = [[(t, v) for t, v in enumerate(line) if v is not None] for line in losses]
    every = [value for line in known for _, value in line if value > 0]
    if not every:
        return Markup("")
    longest = max((len(line) for line in losses), default=1)
    floor = max(min(every) / 3, max(every) * 1e-16)
    x = Scale(0, max(longest - 1, 1), LEFT, NARROW - RIGHT)
    y = Scale(floor, max(every) * 2, SHORT - BOTTOM, TOP, "log")
    parts = []
    for t in range(0, longest, max(1, -(-longest // 12))):
        parts.append(tag("text", t, x=x(t), y=SHORT - BOTTOM + 16, text_anchor="middle", class_="tick"))
    for value in y.ticks(5):
        parts.append(tag("line", x1=LEFT, x2=NARROW - RIGHT, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("text", f"{value:.0e}", x=LEFT - 6, y=y(value) + 4, text_anchor="end", class_="tick"))
    for number, line in sorted(enumerate(known), key=lambda each: not right[each[0]]):
        if line:
            style = "loss" if right[number] else "loss wrong"
            drawn = path_through((x(t), y(max(value, floor))) for t, value in line)
            parts.append(tag("path", tag("title", f"prompt {number + 1}"), d=drawn, class_=style))
    parts.append(tag("text", "position in the prompt", x=NARROW - RIGHT, y=SHORT - 6, text_anchor="end", class_="axis"))
    about = {"role": "img", "aria_label": "cumulative discrete loss by position", "class_": "plot losses"}
    return tag("svg", *parts, viewBox=f"0 0 {NARROW} {SHORT}", **about)
