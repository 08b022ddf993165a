"""The synthetic experiment's MLP, 10 → 500 → 2 → 100 → 2, cut where the representation is a point of the plane."""

from itertools import pairwise

import torch
from torch import nn

from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.split import Architecture, ShapeError, network

HIDDEN, PLANE = 500, 2
HEADS = {"default": (100,), "deeper": (100, 100, 100), "wider": (2048,)}  # the widths between the cut and the logits


@network("mlp")
def mlp(shape: tuple[int, ...], classes: int, head: str) -> Architecture:
    """The MLP's layers; block 2 ends with the 2nd fully-connected layer, `fc2`, z ∈ R².

    The paper only says σ. With sigmoids its initialisation trains, and to its accuracy; with ReLUs it is dead at once.
    """
    if len(shape) != 1:
        raise ShapeError(f"the network mlp takes vectors; these inputs are {shape} (channels, height, width)")
    if head not in HEADS:
        raise UserError(f"head must be one of {', '.join(HEADS)}; got {head}")
    widths = [shape[0], HIDDEN, PLANE, *HEADS[head], classes]
    net = Architecture()
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        if number > 1:
            net.add(f"sigmoid{number - 1}", nn.Sigmoid())
        net.add(f"fc{number}", gaussian(before, after), ends_block=number < len(widths) - 1)
    return net


def gaussian(before: int, after: int) -> nn.Linear:
    """A layer whose entries are N(0, 1), not scaled by its width: the paper's N(u_k, 1), u_k ~ N(0, α), at α = 0."""
    layer = nn.Linear(before, after)
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    return layer
