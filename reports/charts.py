"""SVG in Python: tags that escape what they hold, colour ramps, axes, and heat maps over (λ, β)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from reports.tables import short

# viridis at nine points: ordered by lightness, so it reads in grey and for the colour-blind
RAMP = (
    (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140), (40, 174, 128), (94, 201, 98),
    (173, 220, 48), (253, 231, 37),
)  # fmt: skip
ROW, HEAD, LEFT = 32, 40, 52  # of a heat map, in pixels: a row, the space above the first, and beside it
NARROWEST = 150  # a colour bar with room for its numbers
FEWEST = 4  # numbers that an axis needs to be read
BAR = 46  # below the rows: the colour bar and its numbers


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
        row: λ.
        column: β.
        value: what its colour says; None: nothing was measured.
        text: what stands in it.
        tip: what is said about it where somebody points at it.
        cell: the id of the cell that choosing it chooses; empty: there is nothing to choose.
    """

    row: float
    column: float
    value: float | None
    text: str
    tip: str
    cell: str = ""


def heat_map(
    name: str,
    squares: Sequence[Square],
    vanilla: float | None = None,
    digits: int = 3,
    limits: tuple[float, float] | None = None,
) -> Markup:
    """The squares over λ (down) and β (to the right, from large to small), above a colour bar with vanilla's value.

    Args:
        name: what the map is of, for who cannot see it.
        squares: in any order; a place without one stays hatched.
        vanilla: the value without a defence.
        digits: of the numbers at the colour bar.
        limits: the ends of the colours; values beyond them take the colour of the end, so that one collapsed cell
            leaves the others theirs.
    """
    rows = sorted({square.row for square in squares})
    columns = sorted({square.column for square in squares}, reverse=True)
    wide = 60 if len(columns) <= 8 else 48
    values = [square.value for square in squares if square.value is not None]
    among = [*values, *([vanilla] if vanilla is not None else [])]
    low, high = (min(among), max(among)) if among else (0.0, 0.0)
    ends = limits or (low, high)
    bar = max(wide * len(columns), NARROWEST)
    width, height = LEFT + bar + 6, HEAD + ROW * len(rows) + BAR
    parts = [*axis_names(rows, columns, wide)]
    taken = {(square.row, square.column) for square in squares}
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if (row, column) not in taken:
                parts.append(gap(LEFT + wide * j, HEAD + ROW * i, wide))
    for square in sorted(squares, key=lambda square: (rows.index(square.row), columns.index(square.column))):
        i, j = rows.index(square.row), columns.index(square.column)
        parts.append(drawn(square, i, j, wide, *ends))
    if among:
        parts.append(colour_bar(ends, (low, high), vanilla, HEAD + ROW * len(rows) + 10, bar, digits))
    return tag(
        "svg", *parts,
        viewBox=f"0 0 {width} {height}", width=width, role="group", aria_label=name, class_="heat",
        style=f"min-width:{round(0.72 * width)}px",
    )  # fmt: skip


def axis_names(rows: Sequence[float], columns: Sequence[float], wide: int) -> list[Markup]:
    """λ beside the rows, β above the columns."""
    parts = [tag("text", "λ", x=LEFT - 14, y=HEAD - 9, class_="axis", text_anchor="end"),
             tag("text", "β →", x=LEFT, y=13, class_="axis")]  # fmt: skip
    for i, row in enumerate(rows):
        parts.append(tag("text", short(row), x=LEFT - 8, y=HEAD + ROW * i + 20, text_anchor="end", class_="tick"))
    for j, column in enumerate(columns):
        middle = LEFT + wide * (j + 0.5)
        parts.append(tag("text", short(column), x=middle, y=HEAD - 9, text_anchor="middle", class_="tick"))
    return parts


def gap(x: float, y: float, wide: int) -> Markup:
    """A place that no run fills."""
    return tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=ROW - 2, class_="gap")


def drawn(square: Square, i: int, j: int, wide: int, low: float, high: float) -> Markup:
    """One square with its number; it can be pointed at, and chosen with a key."""
    fill, text = None, None
    if square.value is not None:
        rgb = colour((square.value - low) / (high - low) if high > low else 0.5)
        fill, text = f"fill:rgb{rgb}".replace(" ", ""), f"fill:{ink(rgb)}"
    x, y = LEFT + wide * j, HEAD + ROW * i
    kind = "value" if square.value is not None else "blank"
    chosen = {"data_cell": square.cell, "tabindex": 0, "role": "button"} if square.cell else {"role": "img"}
    return tag(
        "g",
        tag("title", square.tip),
        tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=ROW - 2, style=fill),
        tag("text", square.text, x=x + wide / 2, y=y + 20, text_anchor="middle", style=text),
        class_=f"square {kind}", aria_label=square.tip, data_row=i, data_column=j, **chosen,
    )  # fmt: skip


def colour_bar(
    ends: tuple[float, float], values: tuple[float, float], vanilla: float | None, y: float, wide: float, digits: int
) -> Markup:
    """The ramp between its ends, with a mark at vanilla's; where values go beyond an end, that is said."""
    (low, high), below, above = ends, "≤ " * (values[0] < ends[0]), "≥ " * (values[1] > ends[1])
    steps = 24
    parts = []
    if high > low:
        step = wide / steps
        for k in range(steps):
            fill = f"fill:rgb{colour((k + 0.5) / steps)}".replace(" ", "")
            parts.append(tag("rect", x=LEFT + k * step, y=y, width=step + 0.3, height=6.0, style=fill))
        parts.append(tag("text", f"{below}{low:.{digits}f}", x=LEFT, y=y + 19, class_="tick"))
        parts.append(
            tag("text", f"{above}{high:.{digits}f}", x=LEFT + wide, y=y + 19, text_anchor="end", class_="tick")
        )
    if vanilla is not None:
        part = (vanilla - low) / (high - low) if high > low else 0.5
        x = LEFT + wide * min(max(part, 0.0), 1.0)
        if high > low:
            parts.append(tag("path", d=f"M{x:.1f} {y - 1:.1f}l-4 -6h8z", class_="mark"))
        said = f"{'▾ ' * (high > low)}vanilla {vanilla:.{digits}f}"
        parts.append(tag("text", said, x=LEFT + wide / 2, y=y + 33, text_anchor="middle", class_="tick"))
    return tag("g", *parts, aria_hidden="true")


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
