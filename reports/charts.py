"""SVG in Python: tags that escape what they hold, colour ramps, scales, and heat maps over two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from sweetspot.reports.axes import Axis

# viridis at nine points: ordered by lightness, so it reads in grey and for the colour-blind
RAMP = (
    (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140), (40, 174, 128), (94, 201, 98),
    (173, 220, 48), (253, 231, 37),
)  # fmt: skip
ROW, HEAD, LEFT = 32, 40, 52  # of a heat map, in pixels: a row, the space above the first, and beside it
NARROWEST = 150  # a colour bar with room for its numbers
FEWEST = 4  # numbers that an axis needs to be read
BAR = 46  # below the rows: the colour bar and its numbers
BAR_ALONE = 240  # pixels of a colour bar that many maps share
LETTER = 7  # pixels of a letter of an axis


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; attributes are escaped, `_` in their names is `-`, None is left out, floats are rounded.

    Example:
        >>> str(tag("text", "a < b", x=1.0, text_anchor="end"))
        '<text x="1" text-anchor="end">a &lt; b</text>'
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, inside)


def shown(value: object) -> object:
    """An attribute's value; a float with no more digits than a pixel needs."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def colour(fraction: float) -> tuple[int, int, int]:
    """The ramp at a fraction of it.

    Example:
        >>> colour(0.0), colour(1.0)
        ((68, 1, 84), (253, 231, 37))
    """
    place = min(max(fraction, 0.0), 1.0) * (len(RAMP) - 1)
    index = min(int(place), len(RAMP) - 2)
    low, high, part = RAMP[index], RAMP[index + 1], place - index
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(low, high, strict=True))
    return red, green, blue


def luminance(rgb: tuple[int, int, int]) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [channel / 255 for channel in rgb]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink(rgb: tuple[int, int, int]) -> str:
    """Black or white, whichever reads better on a colour."""
    on = luminance(rgb)
    return "#fff" if 1.05 / (on + 0.05) > (on + 0.05) / 0.05 else "#000"


@dataclass(frozen=True)
class Square:
    """One square of a heat map.

    Args:
        row: which of the row's values it belongs to.
        column: which of the column's.
        value: what its colour says; None: nothing was measured.
        text: what stands in it.
        tip: what is said about it where somebody points at it.
        cell: the id of the cell that choosing it chooses; empty: there is nothing to choose.
        name: its own, where it may move to a map over other axes.
    """

    row: int
    column: int
    value: float | None
    text: str
    tip: str
    cell: str = ""
    name: str = ""


def heat_map(
    name: str,
    squares: Sequence[Square],
    rows: Axis,
    columns: Axis,
    bar: ColourBar,
    is_one_of_many: bool = False,
    is_empty: bool = False,
    wide: int = 0,
) -> Markup:
    """The squares over two axes, rows down and columns to the right, above their colour bar.

    Args:
        name: what the map is of, for who cannot see it.
        squares: in any order; a place without one stays hatched.
        rows: the axis down.
        columns: the axis to the right.
        bar: what the colours say.
        is_one_of_many: whether the colour bar stands elsewhere, for all of them.
        is_empty: whether squares are left out and their places named, for a script to move them to.
        wide: of a column, in pixels; 0: as its labels need.
    """
    wide = wide or width_of([columns])
    left = max(LEFT, 14 + LETTER * max(map(len, [rows.label, *rows.texts])))
    across = wide * len(columns.values)
    width = left + (max(across, LETTER * (len(columns.label) + 2)) if is_one_of_many else max(across, NARROWEST)) + 6
    height = HEAD + ROW * len(rows.values) + (6 if is_one_of_many else BAR)
    parts = [*axis_names(rows, columns, left, wide)]
    taken = {(square.row, square.column) for square in squares}
    for i in range(len(rows.values)):
        for j in range(len(columns.values)):
            if (i, j) not in taken:
                parts.append(gap(left + wide * j, HEAD + ROW * i, wide))
    for square in sorted(squares, key=lambda square: (square.row, square.column)):
        place = f"translate({left + wide * square.column} {HEAD + ROW * square.row})"
        if is_empty:
            parts.append(tag("g", data_slot=square.name, transform=place))
        else:
            parts.append(drawn(square, place, wide, bar.ends))
    if not is_one_of_many:
        parts.append(bar.drawn(left, HEAD + ROW * len(rows.values) + 10, max(across, NARROWEST)))
    return tag(
        "svg", *parts,
        viewBox=f"0 0 {width} {height}", width=width, role="group", aria_label=name, class_="heat",
        style=f"min-width:{round(0.72 * width)}px",
    )  # fmt: skip


def width_of(axes: Sequence[Axis]) -> int:
    """Of a column that any of these axes may have its values above, in pixels."""
    fewest = 60 if all(len(axis.values) <= 8 for axis in axes) else 48
    return max(fewest, 10 + LETTER * max(len(text) for axis in axes for text in axis.texts))


def axis_names(rows: Axis, columns: Axis, left: int, wide: int) -> list[Markup]:
    """The rows' axis beside them, the columns' above."""
    parts = [tag("text", rows.label, x=left - 14, y=HEAD - 9, class_="axis", text_anchor="end"),
             tag("text", f"{columns.label} →", x=left, y=13, class_="axis")]  # fmt: skip
    for i, row in enumerate(rows.texts):
        parts.append(tag("text", row, x=left - 8, y=HEAD + ROW * i + 20, text_anchor="end", class_="tick"))
    for j, column in enumerate(columns.texts):
        parts.append(tag("text", column, x=left + wide * (j + 0.5), y=HEAD - 9, text_anchor="middle", class_="tick"))
    return parts


def gap(x: float, y: float, wide: int) -> Markup:
    """A place that no run fills."""
    return tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=ROW - 2, class_="gap")


def drawn(square: Square, place: str, wide: int, ends: tuple[float, float]) -> Markup:
    """One square with its number; it can be pointed at, and chosen with a key."""
    fill, text = None, None
    (low, high), kind = ends, "blank"
    if square.value is not None:
        rgb = colour((square.value - low) / (high - low) if high > low else 0.5)
        fill, text, kind = f"fill:rgb{rgb}".replace(" ", ""), f"fill:{ink(rgb)}", "value"
    chosen = {"data_cell": square.cell, "tabindex": 0, "role": "button"} if square.cell else {"role": "img"}
    return tag(
        "g",
        tag("title", square.tip),
        tag("rect", x=1, y=1, width=wide - 2, height=ROW - 2, style=fill),
        tag("text", square.text, x=wide / 2, y=20, text_anchor="middle", style=text),
        class_=f"square {kind}", aria_label=square.tip, transform=place, data_square=square.name or None, **chosen,
    )  # fmt: skip


@dataclass(frozen=True)
class ColourBar:
    """What the colours of a map say.

    Args:
        ends: of the colours; values beyond them take the colour of the end, so that one collapsed cell leaves the
            others theirs.
        values: the smallest and the largest there is.
        vanilla: the value without a defence, where it is known.
        digits: of its numbers.
    """

    ends: tuple[float, float]
    values: tuple[float, float]
    vanilla: float | None = None
    digits: int = 3

    @classmethod
    def of(
        cls,
        values: Sequence[float],
        vanilla: float | None = None,
        digits: int = 3,
        limits: tuple[float, float] | None = None,
    ) -> ColourBar:
        """The bar of some values; without limits they are its ends."""
        among = [*values, *([vanilla] if vanilla is not None else [])] or [0.0]
        lowest, highest = min(among), max(among)
        return cls(limits or (lowest, highest), (lowest, highest), vanilla, digits)

    def drawn(self, left: float, y: float, wide: float) -> Markup:
        """The ramp between its ends, with a mark at vanilla's; where values go beyond an end, that is said."""
        (low, high), digits = self.ends, self.digits
        below, above = "≤ " * (self.values[0] < low), "≥ " * (self.values[1] > high)
        steps, parts = 24, []
        if high > low:
            step = wide / steps
            for k in range(steps):
                fill = f"fill:rgb{colour((k + 0.5) / steps)}".replace(" ", "")
                parts.append(tag("rect", x=left + k * step, y=y, width=step + 0.3, height=6.0, style=fill))
            parts.append(tag("text", f"{below}{low:.{digits}f}", x=left, y=y + 19, class_="tick"))
            end = f"{above}{high:.{digits}f}"
            parts.append(tag("text", end, x=left + wide, y=y + 19, text_anchor="end", class_="tick"))
        if self.vanilla is not None:
            part = (self.vanilla - low) / (high - low) if high > low else 0.5
            x = left + wide * min(max(part, 0.0), 1.0)
            if high > low:
                parts.append(tag("path", d=f"M{x:.1f} {y - 1:.1f}l-4 -6h8z", class_="mark"))
            said = f"{'▾ ' * (high > low)}vanilla {self.vanilla:.{digits}f}"
            parts.append(tag("text", said, x=left + wide / 2, y=y + 33, text_anchor="middle", class_="tick"))
        return tag("g", *parts, aria_hidden="true")

    def alone(self) -> Markup:
        """The bar as a picture of its own, for many maps."""
        return tag("svg", self.drawn(6, 10, BAR_ALONE), viewBox=f"0 0 {BAR_ALONE + 12} {BAR}", width=BAR_ALONE + 12,
                   role="img", aria_label="colours", class_="bar")  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """From numbers to pixels.

    Args:
        low: the smallest number.
        high: the largest number.
        start: the pixel of the smallest.
        end: the pixel of the largest.
        kind: linear, log, or error: the logarithm of what is missing to 1, which keeps 98 % and 99 % apart.
    """

    low: float
    high: float
    start: float
    end: float
    kind: str = "linear"

    def __call__(self, value: float) -> float:
        low, high, here = (self.bent(each) for each in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((here - low) / (high - low) if high > low else 0.5)

    def bent(self, value: float) -> float:
        """The number on the scale's own footing."""
        if self.kind == "log":
            return math.log10(max(value, 1e-300))
        return -math.log10(max(1 - value, 1e-5)) if self.kind == "error" else value

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers between the two ends."""
        if self.kind == "error":
            for digits in ([1, 2, 5], list(range(1, 10))):
                missing = [m * 10.0**e for e in range(-5, 0) for m in digits] + [1.0]
                there = sorted(1 - each for each in missing if self.low <= 1 - each <= self.high)
                if len(there) >= FEWEST:
                    break
            return thinned(there, most)
        if self.kind == "log" and self.high > 8 * self.low:
            ends = math.floor(self.bent(self.low)), math.ceil(self.bent(self.high))
            fine = (1, 2, 5) if ends[1] - ends[0] <= 3 else (1,)
            every = [m * 10.0**e for e in range(ends[0], ends[1] + 1) for m in fine]
            return thinned([each for each in every if self.low <= each <= self.high], most)
        step = nice((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice(step: float) -> float:
    """The next larger of 1, 2 and 5 times a power of ten.

    Example:
        >>> nice(0.03), nice(7)
        (0.05, 10.0)
    """
    if not step > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next((m * power for m in (1, 2, 5) if m * power >= step * (1 - 1e-9)), 10 * power)


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Every so-manyth of many values."""
    return list(values[:: max(1, -(-len(values) // most))])
