"""What a trained split network is still good for, measured on the test set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from datamodules.tensors import EVALUATION_BATCH, TensorDataModule, scaled
from lightning_modules.separability import SAMPLES
from lightning_modules.split_module import SplitModule


@dataclass
class Utility:
    """Accuracy in [0, 1] on the whole test set, and the representations (≤ SAMPLES, …) of its first examples."""

    accuracy: float
    representations: Tensor
    classes: Tensor


@torch.inference_mode()
def measure_utility(module: SplitModule, datamodule: TensorDataModule) -> Utility:
    """The module's accuracy and test representations, in one process, on the device the module is on."""
    x_test, y_test = datamodule.test
    correct = torch.zeros((), dtype=torch.long, device=module.device)
    kept: list[Tensor] = []
    with evaluating(module):
        for x, y in zip(x_test.split(EVALUATION_BATCH), y_test.split(EVALUATION_BATCH), strict=True):
            z = module.encode(scaled(x.to(module.device)))
            correct += (module.network.head(z).argmax(dim=1) == y.to(module.device)).sum()
            if sum(map(len, kept)) < SAMPLES:
                kept.append(z)
    return Utility(correct.item() / len(y_test), torch.cat(kept)[:SAMPLES], y_test[:SAMPLES])


@torch.inference_mode()
def representations_of_tests(
    module: SplitModule, datamodule: TensorDataModule, count: int = SAMPLES
) -> tuple[Tensor, Tensor]:
    """The representations (≤ count, …) of the first test examples, and their classes."""
    x, y = datamodule.test
    with evaluating(module):
        return module.encode(scaled(x[:count].to(module.device))), y[:count]


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and back in the mode it was in: Lightning trains in whatever mode it finds."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
