"""Defence = penalty × bottleneck × release: each is optional, and each combines with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.bottlenecks import Bottleneck
from sweetspot.lightning_modules.defences.penalties import PENALTIES, Place
from sweetspot.lightning_modules.defences.releases import RELEASES, Chain, Gaussian, Release


class Defence(nn.Module):
    """What a client does to its cut layer: h → squeeze → release → the server, which widens.

    Args:
        penalty: its name.
        options: of the penalty.
        bottleneck: as the flag has it; None for none.
        release: what is done to z before it leaves, in order, each with its name and options.
        x_shape: the shape of one input.
        h_shape: the shape of the cut layer.
        classes: how many classes there are.
        is_text: whether inputs are tokens.
    """

    def __init__(
        self,
        x_shape: tuple[int, ...],
        h_shape: tuple[int, ...],
        classes: int,
        penalty: str = "none",
        options: dict[str, Any] | None = None,
        bottleneck: str | None = None,
        release: Sequence[dict[str, Any]] = (),
        is_text: bool = False,
    ) -> None:
        super().__init__()
        self.bottleneck = Bottleneck(bottleneck, h_shape) if bottleneck else None
        self.release = Chain(*(release_of(each) for each in release))
        self.penalty = PENALTIES[penalty](**(options or {}))
        self.penalty.put(Place(x_shape, self.z_shape(h_shape), classes, self.sigma, is_text))

    @torch.no_grad()
    def z_shape(self, h_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one representation behind the bottleneck."""
        return tuple(self.squeeze(torch.zeros(1, *h_shape)).shape[1:])

    @property
    def sigma(self) -> float | None:
        """The standard deviation of Gaussian noise on z as it is; None where there is no such noise."""
        return next(
            (each.sigma for each in self.release.releases() if isinstance(each, Gaussian) and each.unit == "raw"), None
        )

    def squeeze(self, h: Tensor) -> Tensor:
        """h behind the bottleneck: the client's."""
        squeezed: Tensor = h if self.bottleneck is None else self.bottleneck.squeeze(h)
        return squeezed

    def widen(self, z: Tensor) -> Tensor:
        """What was released as the head takes it: the server's."""
        widened: Tensor = z if self.bottleneck is None else self.bottleneck.widen(z)
        return widened

    def trained_with_the_network(self) -> list[nn.Parameter]:
        """Its parameters, without those that the penalty trains by itself."""
        own = {id(parameter) for parameter in self.penalty.own_parameters()}
        return [parameter for parameter in self.parameters() if id(parameter) not in own]


def release_of(described: dict[str, Any]) -> Release:
    """A release from its name and options."""
    options = {name: value for name, value in described.items() if name != "name"}
    return RELEASES[described["name"]](**options)
