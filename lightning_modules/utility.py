"""What a trained split network is still good for, measured on the test set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sweetspot.datamodules.tensors import SPLIT_SEED, TensorDataModule, evaluation_batch, scaled
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.separability import SAMPLES
from sweetspot.lightning_modules.split_module import SplitModule, evaluating, positions


@dataclass
class Utility:
    """Accuracy in [0, 1] on the whole test set, and representations (≤ SAMPLES, …) of examples from all over it.

    For a text an example is a position, its class the next token; only there is a perplexity.
    """

    accuracy: float
    perplexity: float | None
    representations: Tensor
    classes: Tensor


def measure_utility(
    module: SplitModule, datamodule: TensorDataModule, channel: Callable[[Tensor], Tensor] | None = None
) -> Utility:
    """The module's accuracy and test representations, in one process, on the device the module is on.

    Args:
        module: the trained network and its defence.
        datamodule: whose test set counts.
        channel: what becomes of the representations on their way to the server; None: nothing.
    """
    with evaluating(module):
        seed, device = module.hparams["seed"], module.device
        return utility_of(module.encode, module.answer, datamodule, seed, device, channel)


@torch.inference_mode()
def utility_of(
    encode: Callable[[Tensor], Tensor],
    answer: Callable[[Tensor], Tensor],
    datamodule: TensorDataModule,
    seed: int,
    device: torch.device,
    channel: Callable[[Tensor], Tensor] | None = None,
    at_once: int | None = None,
) -> Utility:
    """The accuracy and test representations of any client and server, both in evaluation mode.

    Args:
        encode: what leaves the client for inputs.
        answer: the server's logits for what was released.
        datamodule: whose test set counts.
        seed: of what is released at random.
        device: where both are.
        channel: what becomes of the representations on their way to the server; None: nothing.
        at_once: how many examples are looked at together; None: as many as of our own networks.
    """
    x_test, y_test = datamodule.test
    correct = torch.zeros((), dtype=torch.long, device=device)
    nll = torch.zeros((), dtype=torch.float64, device=device)  # negative log-likelihood
    kept: list[Tensor] = []
    size = at_once or evaluation_batch(y_test)
    sample = sample_mask(y_test.numel()).view_as(y_test)
    parts = zip(x_test.split(size), y_test.to(device).split(size), sample.split(size), strict=True)
    with draws_from(seed, device):
        for x, y, in_sample in parts:
            z = encode(scaled(x.to(device)))
            z = z if channel is None else channel(z)
            logits = positions(answer(z), y)
            correct += (logits.argmax(dim=1) == y.flatten()).sum()
            nll += F.cross_entropy(logits, y.flatten(), reduction="sum")
            kept.append(positions(z, y)[in_sample.flatten().to(z.device)])
    perplexity = (nll / y_test.numel()).exp().item() if y_test.ndim == 2 else None
    return Utility(correct.item() / y_test.numel(), perplexity, torch.cat(kept), y_test[sample])


def sample_mask(total: int, count: int = SAMPLES) -> Tensor:
    """Which of `total` examples belong to a sample of at most `count`, (total,) of bool, the same for every run.

    They are drawn from all over the set: data are often sorted by class.
    """
    drawn = torch.randperm(total, generator=torch.Generator().manual_seed(SPLIT_SEED))[:count]
    return torch.zeros(total, dtype=torch.bool).index_fill_(0, drawn, True)


@torch.inference_mode()
def representations_of_tests(
    module: SplitModule, datamodule: TensorDataModule, count: int = SAMPLES
) -> tuple[Tensor, Tensor]:
    """The representations (≤ count, …) of test examples from all over the set, and their classes."""
    x, y = datamodule.test
    sample = sample_mask(len(y), count)
    with evaluating(module), draws_from(module.hparams["seed"], module.device):
        return module.encode(scaled(x[sample].to(module.device))), y[sample]
