"""What every test on a device needs."""

from __future__ import annotations

import pytest
from torchvision.models.vgg import cfgs

from sweetspot.lightning_modules.networks import vgg


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """VGG16 with all its layers, an eighth as wide."""
    layers = [each if isinstance(each, str) else each // 8 for each in cfgs["D"]]
    monkeypatch.setitem(cfgs, "D", layers)
    monkeypatch.setattr(vgg, "WIDTH", vgg.WIDTH // 8)
