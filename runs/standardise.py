"""`--standardise`: what a client does to images first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sweetspot.errors import UserError

if TYPE_CHECKING:
    from sweetspot.datamodules import TensorDataModule


def standardising(texts: list[str]) -> tuple[list[float], list[float]] | None:
    """The mean and the standard deviation that `--standardise` gives, by channel or one for all; None: it gives none.

    Example:
        >>> standardising(["0.5", "0.2,0.3,0.4"]), standardising(["none"])
        (([0.5], [0.2, 0.3, 0.4]), None)
    """
    if texts in ([], ["data"], ["none"]):
        return None
    try:
        mean, std = ([float(number) for number in text.split(",")] for text in texts)
    except ValueError:
        mean, std = [], []
    if not mean or not all(map(math.isfinite, [*mean, *std])) or min(std) <= 0 or len({1, len(mean), len(std)}) > 2:
        raise UserError(
            f"--standardise must be data, none, or a mean and a positive standard deviation, one number each or one a "
            f"channel joined by commas; got {' '.join(texts)}"
        )
    return mean, std


def pixels_by(texts: list[str], data: TensorDataModule) -> dict[str, list[float]] | None:
    """Mean and standard deviation by channel that `--standardise` asks for; None for none, and for what is no image.

    Args:
        texts: data, none, or a mean and a standard deviation.
        data: whose inputs are scaled.
    """
    given = standardising(texts)
    if given is None:
        return data.pixels() if texts == ["data"] else None
    if len(data.shape) != 3:
        raise UserError(f"--standardise scales images, and {data.arrays.name} has none")
    channels = data.shape[0]
    if any(len(each) not in (1, channels) for each in given):
        raise UserError(
            f"--standardise must have one number, or one for each of {channels} channels; got {' '.join(texts)}"
        )
    mean, std = (each * channels if len(each) == 1 else each for each in given)
    return {"mean": mean, "std": std}
