"""Adversarial representation learning (ResSFL): a proxy decoder learns to invert what is released, the network to foil
it. The attack at the end is another decoder, fresh and stronger."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.penalties.base import PENALTIES, Penalty, Place
from sweetspot.lightning_modules.ssim import WINDOW, structural_dissimilarity
from sweetspot.options import option

HIDDEN = 256
TARGETS = ("ssim", "l1")
TOLERATED = 0.5  # SSIM that costs nothing


class Proxy(nn.Module):
    """A small decoder from z to x, by dense layers: what the network must foil while it trains, not what attacks it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.x_shape = place.x_shape
        inputs, outputs = torch.Size(place.z_shape).numel(), torch.Size(place.x_shape).numel()
        self.layers = nn.Sequential(
            nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
        )

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z.flatten(1)).view(-1, *self.x_shape)
        return x.sigmoid() if len(self.x_shape) == 3 else x


@PENALTIES("adversary")
class Adversary(Penalty):
    """λ·max(0, SSIM(D(z̃), x) − ½), or −λ·‖D(z̃) − x‖₁; D descends ‖D(z̃) − x‖₁ by an optimiser of its own."""

    takes_text = False
    if_it_never_moved = "the proxy's SSIM stayed below ½ (train longer, raise --proxy-lr, or use --against l1)"
    against: str = option("ssim", "what is kept low: ssim of the proxy's images, or minus its l1", choices=TARGETS)
    proxy_lr: float = option(1e-3, "the learning rate of the proxy decoder (Adam)", above=0)

    def put(self, place: Place) -> None:
        super().put(place)
        if self.against == "ssim" and (len(place.x_shape) != 3 or min(place.x_shape[1:]) < WINDOW):
            raise UserError(f"--against ssim needs images of at least {WINDOW} px; use --against l1")
        self.proxy = Proxy(place)
        self.optimiser = torch.optim.Adam(self.proxy.parameters(), lr=self.proxy_lr)
        self.resumed: dict[str, Any] | None = None  # taken up once the proxy is on its device

    def own_parameters(self) -> list[nn.Parameter]:
        return [*self.proxy.parameters()]

    def learn(self, released: Tensor, x: Tensor) -> None:
        if self.resumed is not None:
            self.optimiser.load_state_dict(self.resumed)
            self.resumed = None
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            loss = F.l1_loss(self.proxy(released.detach().float()), x.float())
            gradients = torch.autograd.grad(loss, [*self.proxy.parameters()])
        for parameter, gradient in zip(self.proxy.parameters(), gradients, strict=True):
            parameter.grad = over_devices(gradient)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def value(self, z: Tensor, y: Tensor, x: Tensor, released: Tensor) -> Tensor:
        frozen = {name: tensor.detach() for name, tensor in self.proxy.named_parameters()}
        with torch.autocast(x.device.type, enabled=False):
            recovered = torch.func.functional_call(self.proxy, frozen, (released.float(),))
            if self.against == "l1":
                return -F.l1_loss(recovered, x.float())
            return (1 - TOLERATED - structural_dissimilarity(recovered, x.float())).clamp_min(0)

    def own_state(self) -> dict[str, Any]:
        return {"optimiser": self.optimiser.state_dict()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.resumed = state["optimiser"]


def over_devices(gradient: Tensor) -> Tensor:
    """The mean of a gradient over all devices that train together: their proxies stay one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(gradient)
        gradient /= torch.distributed.get_world_size()
    return gradient
