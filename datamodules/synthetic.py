"""The synthetic data of MixCon's first experiment: two Gaussians in R^10 with 5 % of the training labels flipped."""

import torch
from torch import Tensor

from sweetspot.datamodules.tensors import Arrays

DIMENSION = 10
TRAIN, TEST = 800, 200
FLIPPED = 0.05


def gaussians(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`count` points, half of them from N(0, I) with class 0, half from N(−1, I) with class 1."""
    y = torch.arange(count) % 2
    x = torch.randn(count, DIMENSION, generator=generator) - y[:, None]
    return x, y


def synthetic(seed: int) -> Arrays:
    """800 training and 200 test points; 5 % of the training labels are flipped, the test labels are true."""
    generator = torch.Generator().manual_seed(seed)
    x_train, y_train = gaussians(TRAIN, generator)
    x_test, y_test = gaussians(TEST, generator)
    flipped = torch.randperm(TRAIN, generator=generator)[: round(TRAIN * FLIPPED)]
    y_train[flipped] = 1 - y_train[flipped]
    source = f"two Gaussians, seed {seed}, {FLIPPED:.0%} of the training labels flipped"
    return Arrays(
        "synthetic", source, x_train, y_train, x_test, y_test, classes=2, validation=gaussians(TEST, generator)
    )
