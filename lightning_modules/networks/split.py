"""SplitNetwork: `encoder` (the client's part) and `head` (the server's), cut out of one list of named layers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from sweetspot.errors import UserError, meant


class ShapeError(UserError):
    """A network does not take inputs of a shape; another may."""


@dataclass
class Architecture:
    """A whole network as named layers, before anyone has cut it.

    Args:
        layers: every layer by name, in the order they run.
        blocks: the name of the last layer of each block, so that `cut=2` means "after the 2nd block".
    """

    layers: dict[str, nn.Module] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)

    def add(self, name: str, layer: nn.Module, ends_block: bool = False) -> None:
        """Append one layer; `ends_block` makes it a place that `cut=<number>` can mean."""
        self.layers[name] = layer
        if ends_block:
            self.blocks.append(name)


class Standardise(nn.Module):
    """Images in [0, 1] with each channel shifted to mean 0 and scaled to standard deviation 1.

    It is the client's first layer, so that an attack works on the image itself, in [0, 1].
    """

    def __init__(self, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))  # (C, 1, 1)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))
        self.mean: Tensor
        self.std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class SplitNetwork(nn.Module):
    """`forward(x) = head(encoder(x))`; the output of `encoder` is the cut layer z.

    Args:
        architecture: the network's layers.
        cut: a block's number (1 is the first), or the name of the last layer that the client runs.
        pixels: mean and standard deviation of the images by channel; with them the encoder standardises its input.
    """

    def __init__(
        self, architecture: Architecture, cut: int | str, pixels: dict[str, list[float]] | None = None
    ) -> None:
        super().__init__()
        names = list(architecture.layers)
        self.cut_layer = find_cut(architecture, cut)
        after = names.index(self.cut_layer) + 1
        self.encoder = nn.Sequential()
        self.head: nn.Module = nn.Sequential()
        if pixels is not None:
            self.encoder.add_module("standardise", Standardise(**pixels))
        for position, (name, layer) in enumerate(architecture.layers.items()):
            (self.encoder if position < after else self.head).add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(x))
        return logits


def find_cut(architecture: Architecture, cut: int | str) -> str:
    """The name of the cut layer that a block number or a layer name stands for."""
    names = list(architecture.layers)[:-1]  # the last layer gives the logits: the server must keep at least that one
    if str(cut) in names:
        return str(cut)
    if str(cut).isdecimal() and 1 <= int(cut) <= len(architecture.blocks):
        return architecture.blocks[int(cut) - 1]
    raise UserError(
        f"cut must be a block from 1 to {len(architecture.blocks)} or one of the layers {', '.join(names)}; got {cut}"
    )


Builder = Callable[[tuple[int, ...], int, str], Architecture]
NETWORKS: dict[str, Builder] = {}


def network(name: str) -> Callable[[Builder], Builder]:
    """Register `build(shape, classes, head) -> Architecture` under a name that `--network` takes."""

    def register(builder: Builder) -> Builder:
        NETWORKS[name] = builder
        return builder

    return register


def build_network(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    cut: int | str = 2,
    head: str = "default",
    pixels: dict[str, list[float]] | None = None,
    weights: Path | None = None,
) -> SplitNetwork:
    """A split network for inputs of `shape` (without the batch dimension), freshly initialised or with weights.

    Example:
        >>> network = build_network("lenet", (1, 28, 28), classes=10, cut=2)
        >>> network.cut_layer
        'pool2'
    """
    from sweetspot.lightning_modules.networks import foreign

    if foreign.is_foreign(name):
        return foreign.build_foreign(name, tuple(shape), classes, cut, head, pixels, weights)
    architecture = built(name, shape, classes, head)
    if weights is not None:
        foreign.load_weights(nn.Sequential(OrderedDict(architecture.layers)), weights)
    return SplitNetwork(architecture, cut, pixels)


def built(name: str, shape: tuple[int, ...], classes: int, head: str = "default") -> Architecture:
    """The layers of a network of ours; where it does not take the shape, those that do are named."""
    if name not in NETWORKS:
        hint = meant(name, NETWORKS, cutoff=0.4)
        raise UserError(
            f"network must be one of {', '.join(sorted(NETWORKS))}; got {name}{hint}. Others say where they are from: "
            f"torchvision:NAME, timm:NAME, path/to/file.py:function"
        )
    try:
        return NETWORKS[name](tuple(shape), classes, head)
    except ShapeError as error:
        others = [other for other in sorted(NETWORKS) if other != name and takes(other, tuple(shape), classes)]
        way_out = f"Try --network {' or '.join(others)}" if others else "No other network takes them; resize the data"
        raise UserError(f"{error}. {way_out}") from error


def takes(name: str, shape: tuple[int, ...], classes: int) -> bool:
    """Whether a network can be built for inputs of a shape; nothing is computed."""
    try:
        with torch.device("meta"):
            NETWORKS[name](shape, classes, "default")
    except UserError:
        return False
    return True


def only_default_head(network_name: str, head: str) -> None:
    """Refuse a head that this network does not have."""
    if head != "default":
        raise UserError(
            f"head must be default for the network {network_name}; got {head} (only mlp has deeper and wider heads)"
        )
