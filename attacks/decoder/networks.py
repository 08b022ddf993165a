"""Networks of the decoder attack; their layers follow from the shapes of z and x."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

HIDDEN = 1024  # units between z and the coarse image
COARSE = 64  # channels of the coarse image
SLOPE = 0.2  # of the discriminator's leaky ReLUs
GROWTHS = (1, 2, 4, 8)  # how much larger than the map the image may be to be grown by transposed convolutions alone


class InverseNetwork(nn.Module):
    """z (B, …) → x (B, …).

    A map whose size divides the image's is grown by transposed convolutions; any other z goes through dense layers to
    a quarter of the image first; a vector comes out of dense layers alone. z is standardised feature by feature with
    the statistics that `learn_scale` took: a defence that only shrinks features hides nothing.

    Args:
        z_shape: the shape of one representation.
        x_shape: the shape of one input.
        steadied: whether hidden layers are batch-normalised; at the GAN's step size they die without.
    """

    def __init__(self, z_shape: tuple[int, ...], x_shape: tuple[int, ...], steadied: bool = False) -> None:
        super().__init__()
        self.x_shape = x_shape
        self.register_buffer("mean", torch.zeros(z_shape))
        self.register_buffer("std", torch.ones(z_shape))
        self.mean: Tensor
        self.std: Tensor
        features = math.prod(z_shape)
        if len(x_shape) == 1:
            self.layers = nn.Sequential(
                nn.Flatten(),
                *hidden(nn.Linear(features, HIDDEN), steadied),
                *hidden(nn.Linear(HIDDEN, HIDDEN), steadied),
                nn.Linear(HIDDEN, x_shape[0]),
            )
            return
        channels, height, width = x_shape
        growth = height // z_shape[1] if len(z_shape) == 3 and z_shape[1] * z_shape[2] else 0
        layers: list[nn.Module]
        if growth in GROWTHS and (growth * z_shape[1], growth * z_shape[2]) == (height, width):
            at = 2 * COARSE
            layers = hidden(nn.Conv2d(z_shape[0], at, 3, padding=1), steadied)
        else:
            growth, at, coarse = 4, COARSE, (COARSE, -(-height // 4), -(-width // 4))
            layers = [
                nn.Flatten(),
                *hidden(nn.Linear(features, HIDDEN), steadied),
                *hidden(nn.Linear(HIDDEN, math.prod(coarse)), steadied),
                nn.Unflatten(1, coarse),
            ]
        while growth > 2:
            layers += hidden(nn.ConvTranspose2d(at, at // 2, 4, stride=2, padding=1), steadied)
            growth, at = growth // 2, at // 2
        # the last layer at full size is the dearest: it goes straight to the image's channels
        last = (
            nn.ConvTranspose2d(at, channels, 4, stride=2, padding=1)
            if growth == 2
            else nn.Conv2d(at, channels, 3, 1, 1)
        )
        self.layers = nn.Sequential(*layers, last, nn.Sigmoid())

    @torch.no_grad()
    def learn_scale(self, z: Tensor) -> None:
        """Take mean and standard deviation of every feature from representations z (N, …)."""
        spread = z.std(dim=0)
        self.mean.copy_(z.mean(dim=0))
        self.std.copy_(spread + 0.05 * spread.mean() + 1e-12)

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers((z - self.mean) / self.std)
        return x[..., : self.x_shape[-2], : self.x_shape[-1]] if x.ndim == 4 else x  # a size that 4 does not divide


class Discriminator(nn.Module):
    """x (B, …) → one logit each (B,): whether an input is a true one."""

    def __init__(self, x_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(x_shape) == 1:
            self.layers = nn.Sequential(nn.Linear(x_shape[0], 256), nn.LeakyReLU(SLOPE), nn.Linear(256, 1))
            return
        layers: list[nn.Module] = []
        at, size, width = x_shape[0], list(x_shape[1:]), 32
        while min(size) > 4:
            layers += [nn.Conv2d(at, width, 4, stride=2, padding=1), nn.LeakyReLU(SLOPE)]
            at, size, width = width, [side // 2 for side in size], min(2 * width, 128)
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(at * math.prod(size), 1))

    def forward(self, x: Tensor) -> Tensor:
        logit: Tensor = self.layers(x)
        return logit.squeeze(1)


def hidden(layer: nn.Linear | nn.Conv2d | nn.ConvTranspose2d, steadied: bool) -> list[nn.Module]:
    """A layer with its activation."""
    if not steadied:
        return [layer, nn.ReLU()]
    norm = nn.BatchNorm1d(layer.out_features) if isinstance(layer, nn.Linear) else nn.BatchNorm2d(layer.out_channels)
    return [layer, norm, nn.ReLU()]
