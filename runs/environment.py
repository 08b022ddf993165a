"""What a result was made with: versions, device, seed, time."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import torch

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
