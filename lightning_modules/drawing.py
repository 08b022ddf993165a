"""Random draws that repeat: what is random within a block follows from a seed, and nothing outside of it changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def draws_from(seed: int, device: torch.device) -> Iterator[None]:
    """A block whose random draws, on the CPU and on `device`, follow from `seed`; afterwards the state is as before.

    Example:
        >>> with draws_from(0, torch.device("cpu")):
        ...     first = torch.rand(3)
        >>> with draws_from(0, torch.device("cpu")):
        ...     assert torch.equal(first, torch.rand(3))
    """
    accelerators = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=accelerators, device_type="cuda" if not accelerators else device.type):
        torch.manual_seed(seed)
        yield
