"""What a result was made with: versions, device, seed, time."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from sweetspot.errors import UserError, first_line

PACKAGES = ("torch", "lightning", "torchvision", "torchmetrics", "numpy")


def environment(device: torch.device, seed: int, seconds: float) -> dict[str, Any]:
    """The `environment` of a results.json."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "versions": {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}},
        "device": f"{device.type} ({name}, {torch.get_num_threads()} threads)"
        if device.type == "cpu"
        else f"{device} ({name})",
        "seed": seed,
        "seconds": round(seconds, 2),
    }


def pick_device(name: str) -> torch.device:
    """The device of this name; `auto` is the accelerator where there is one."""
    if name == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return found if found is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name} cannot be used here ({first_line(error)}); try auto or cpu") from error
    return device


def leave_new_memory_alone() -> None:
    """Determinism without its debugging aid, which fills every new tensor."""
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def reproducible() -> None:
    """Same seed, same machine, same numbers, as Lightning's Trainer does it for training."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    leave_new_memory_alone()
