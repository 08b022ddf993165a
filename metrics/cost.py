"""What a split costs, and what its server is good for: a client that classifies by itself needs none."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.lightning_modules.networks.counting import counted

MOST_TRAINED_ON = 10_000  # more change the third digit of a linear classifier's accuracy, if any
RIDGE = 1e-3  # on standardised features: separable classes have a finite optimum too
STEPS = 200  # of L-BFGS, at most


def cost(
    encoder: nn.Module, head: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> dict[str, int]:
    """Multiply-adds for one input, and parameters, on either side of the cut.

    Args:
        encoder: all that the client computes, a bottleneck's squeezing layers among it.
        head: all that the server computes, its widening layer among it.
        shape: of one input.
        dtype: of the input: `torch.long` for tokens.

    Example:
        >>> cost(nn.Linear(8, 4), nn.Linear(4, 2, bias=False), (8,))
        {'client_macs': 32, 'server_macs': 8, 'client_parameters': 36, 'server_parameters': 8}
    """
    device = next((each.device for part in (encoder, head) for each in part.parameters()), torch.device("cpu"))
    x = torch.zeros(1, *shape, dtype=dtype, device=device)
    z, client = counted(encoder, x)
    _, server = counted(head, z)
    return {
        "client_macs": client,
        "server_macs": server,
        "client_parameters": sum(each.numel() for each in encoder.parameters()),
        "server_parameters": sum(each.numel() for each in head.parameters()),
    }


def server_gain(
    accuracy: float, z_train: Tensor, y_train: Tensor, z_test: Tensor, y_test: Tensor, classes: int
) -> float:
    """The accuracy of the whole network beyond that of a linear classifier on what is released.

    Near 0 the client could classify by itself, and the server is good for nothing.

    Args:
        accuracy: of the whole network on the test set, in [0, 1].
        z_train: what is released (N, …) for training inputs.
        y_train: their classes (N,).
        z_test: what is released (M, …) for test inputs.
        y_test: their classes (M,).
        classes: how many there are.
    """
    return accuracy - linear_accuracy(z_train, y_train, z_test, y_test, classes)


def linear_accuracy(z_train: Tensor, y_train: Tensor, z_test: Tensor, y_test: Tensor, classes: int) -> float:
    """The accuracy of multinomial logistic regression, trained to the optimum; nothing in it is random."""
    y_train, y_test = y_train.to(z_train.device), y_test.to(z_test.device)
    chosen = torch.linspace(0, len(y_train) - 1, min(MOST_TRAINED_ON, len(y_train)), dtype=torch.float64).long()
    y = y_train[chosen.to(y_train.device)]  # evenly spaced: data are often sorted by class
    z = z_train.detach().flatten(1)[chosen.to(z_train.device)].float()
    mean, spread = z.mean(dim=0), z.std(dim=0, unbiased=False).clamp_min(1e-6)
    weight = logistic_regression((z - mean) / spread, y, classes)
    logits = with_bias((z_test.detach().flatten(1).float() - mean) / spread) @ weight
    return float((logits.argmax(dim=1) == y_test).double().mean())


@torch.enable_grad()
def logistic_regression(z: Tensor, y: Tensor, classes: int) -> Tensor:
    """The weights (d + 1, classes), the bias last, that minimise cross-entropy + ridge, by full-batch L-BFGS."""
    z = with_bias(z)
    weight = z.new_zeros(z.shape[1], classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight], max_iter=STEPS, tolerance_grad=1e-4 / math.sqrt(z.shape[1]), history_size=20,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        optimiser.zero_grad()
        value: Tensor = F.cross_entropy(z @ weight, y) + RIDGE / 2 * weight[:-1].square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return weight.detach()


def with_bias(z: Tensor) -> Tensor:
    """Features (N, d) with a last one that is always 1."""
    return torch.cat([z, z.new_ones(len(z), 1)], dim=1)
