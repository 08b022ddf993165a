"""Channels: releases that are put on a trained network, by the name that `--channels` has for them."""

from __future__ import annotations

from sweetspot.lightning_modules.defences.releases.base import RELEASES, Release
from sweetspot.lightning_modules.defences.releases.noise import Gaussian


def channel_release(name: str, unit: float) -> Release:
    """The release that a channel is: a precision by its name, or Gaussian noise of so many units.

    Args:
        name: fp16, bf16, int8, or a number.
        unit: what noise is measured in, one number for a network and its cut.

    Example:
        >>> channel_release("0.5", unit=2.0).noise, channel_release("int8", unit=2.0).noise
        (1.0, 0.0)
    """
    if name in RELEASES:
        return RELEASES[name]()
    return Gaussian(sigma=float(name) * unit, unit="raw", ramp=0.0)


def channel_name(name: str) -> str:
    """How results call a channel.

    Example:
        >>> channel_name("int8"), channel_name("0.30")
        ('int8', 'noise 0.3')
    """
    return name if name[:1].isalpha() else f"noise {float(name):g}"
