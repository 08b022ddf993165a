"""What a trained split network is still good for, measured on the test set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamodules import TensorDataModule
from datamodules.tensors import scaled
from lightning_modules.separability import SAMPLES
from lightning_modules.split_module import SplitModule


@dataclass
class Utility:
    """Accuracy in [0, 1] and the representations (≤ SAMPLES, …) of the first examples it was measured on."""

    accuracy: float
    representations: Tensor
    classes: Tensor


@torch.inference_mode()
def measure_utility(module: SplitModule, datamodule: TensorDataModule) -> Utility:
    """The module's accuracy on the whole test set, in one process, on the device the module is on."""
    module.eval()
    correct = torch.zeros((), dtype=torch.long, device=module.device)
    kept: list[Tensor] = []
    x_test, y_test = datamodule.test
    for x, y in zip(x_test.split(1000), y_test.split(1000), strict=True):
        z = module.encode(scaled(x.to(module.device)))
        correct += (module.network.head(z).argmax(dim=1) == y.to(module.device)).sum()
        if sum(map(len, kept)) < SAMPLES:
            kept.append(z)
    return Utility(correct.item() / len(y_test), torch.cat(kept)[:SAMPLES], y_test[:SAMPLES])
