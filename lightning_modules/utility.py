"""What a trained split network is still good for, measured on the test set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from datamodules.tensors import TensorDataModule, evaluation_batch, scaled
from lightning_modules.separability import SAMPLES
from lightning_modules.split_module import SplitModule, positions


@dataclass
class Utility:
    """Accuracy in [0, 1] on the whole test set, and the representations (≤ SAMPLES, …) of its first examples.

    For a text an example is a position, its class the next token; only there is a perplexity.
    """

    accuracy: float
    perplexity: float | None
    representations: Tensor
    classes: Tensor


@torch.inference_mode()
def measure_utility(
    module: SplitModule, datamodule: TensorDataModule, channel: Callable[[Tensor], Tensor] | None = None
) -> Utility:
    """The module's accuracy and test representations, in one process, on the device the module is on.

    Args:
        module: the trained network and its defence.
        datamodule: whose test set counts.
        channel: what becomes of the representations on their way to the server; None: nothing.
    """
    x_test, y_test = datamodule.test
    correct = torch.zeros((), dtype=torch.long, device=module.device)
    surprise = torch.zeros((), dtype=torch.float64, device=module.device)
    kept: list[Tensor] = []
    size = evaluation_batch(y_test)
    with evaluating(module):
        for x, y in zip(x_test.split(size), y_test.to(module.device).split(size), strict=True):
            z = module.encode(scaled(x.to(module.device)))
            z = z if channel is None else channel(z)
            logits = positions(module.network.head(z), y)
            correct += (logits.argmax(dim=1) == y.flatten()).sum()
            surprise += F.cross_entropy(logits, y.flatten(), reduction="sum")
            if sum(map(len, kept)) < SAMPLES:
                kept.append(positions(z, y))
    perplexity = (surprise / y_test.numel()).exp().item() if y_test.ndim == 2 else None
    return Utility(correct.item() / y_test.numel(), perplexity, torch.cat(kept)[:SAMPLES], y_test.flatten()[:SAMPLES])


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
