"""Bottlenecks: the client's last layers, which squeeze h before anything leaves, and the server's layer that undoes it.

By text: `none`; `16`, a linear map to 16 numbers; `120-16`, over 120 hidden units; `1x1-8`, 1×1 convolutions of a
feature map to 8 channels. On a sequence every position is squeezed by itself.
"""

from __future__ import annotations

import itertools
import math
import re

import torch
from torch import Tensor, nn

from sweetspot.errors import UserError

FORM = re.compile(r"(?P<conv>1x1-)?(?P<widths>[1-9]\d*(?:-[1-9]\d*)*)")


class Bottleneck(nn.Module):
    """`squeeze` (the client's) and `widen` (the server's).

    Args:
        text: as the flag has it.
        z_shape: the shape of one representation: (d,), (C, H, W), or (T, d) for a sequence.
    """

    def __init__(self, text: str, z_shape: tuple[int, ...]) -> None:
        super().__init__()
        convolution, widths = parsed(text)
        if convolution and len(z_shape) != 3:
            raise UserError(f"--bottleneck {text} squeezes the channels of a feature map, and the cut has {z_shape}")
        inputs = z_shape[0] if convolution else z_shape[-1] if len(z_shape) == 2 else math.prod(z_shape)
        sizes = [inputs, *widths]
        layers: list[nn.Module] = [nn.Flatten()] if not convolution and len(z_shape) == 3 else []
        for number, (before, after) in enumerate(itertools.pairwise(sizes)):
            layers += [nn.ReLU()] if number else []
            layers.append(nn.Conv2d(before, after, 1) if convolution else nn.Linear(before, after))
        if len(z_shape) == 2 and max(widths) > inputs:
            raise UserError(
                f"--bottleneck {text} is wider than the states it would squeeze, which have {inputs} numbers"
            )
        self.squeeze = nn.Sequential(*layers)
        back: list[nn.Module] = [nn.Conv2d(widths[-1], inputs, 1) if convolution else nn.Linear(widths[-1], inputs)]
        back += [nn.Unflatten(1, z_shape)] if not convolution and len(z_shape) == 3 else []
        self.widen = nn.Sequential(*back)
        self.text, self.width = text, widths[-1]
        if len(z_shape) == 2 and len(widths) == 1:
            start_as_projection(self.squeeze[-1], self.widen[0])

    def forward(self, h: Tensor) -> Tensor:
        """The squeezed representation: (B, k), (B, k, H, W) or (B, T, k)."""
        squeezed: Tensor = self.squeeze(h)
        return squeezed


@torch.no_grad()
def start_as_projection(squeeze: nn.Module, widen: nn.Module) -> None:
    """Let a linear bottleneck of a sequence begin as an orthogonal projection and its transpose.

    A language model that begins with real weights then loses the other directions, and nothing else.
    """
    assert isinstance(squeeze, nn.Linear)
    assert isinstance(widen, nn.Linear)
    nn.init.orthogonal_(squeeze.weight)
    widen.weight.copy_(squeeze.weight.T)
    nn.init.zeros_(squeeze.bias)
    nn.init.zeros_(widen.bias)


def parsed(text: str) -> tuple[bool, list[int]]:
    """Whether a bottleneck is one of 1×1 convolutions, and its widths.

    Example:
        >>> parsed("120-16"), parsed("1x1-8")
        ((False, [120, 16]), (True, [8]))
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(f"--bottleneck must be none, or widths such as 16, 120-16 or 1x1-8; got {text}")
    return found["conv"] is not None, [int(width) for width in found["widths"].split("-")]
