"""Part: what penalties and releases are, modules with options, parameters and buffers of their own."""

from __future__ import annotations

from typing import Any

from torch import nn

from sweetspot.options import Declared


class Part(Declared, nn.Module):
    """A part of a defence: its options are declared on its class, and it trains, moves and is saved like any module."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.set_options(given)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.record().items())
