"""Audit a model of torchvision: cut it, attack what it would send, and write the page.

python examples/audit_torchvision.py                 # minutes on two cores
python examples/audit_torchvision.py --size 200      # a look, in a minute
"""

from __future__ import annotations

import argparse

import torch
import torchvision
from torch import Tensor, nn

import sweetspot
from sweetspot.datamodules import load
from sweetspot.runs.config import root_of


def trained(x: Tensor, y: Tensor, steps: int) -> nn.Module:
    """A ResNet-18 for grey images, trained a little: bring your own instead."""
    torch.manual_seed(0)
    model: nn.Module = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        batch = torch.randint(len(y), (64,), generator=torch.Generator().manual_seed(step))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Train, cut, attack, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2000, help="training images; the attacker has as many of its own")
    parser.add_argument("--cut", default="layer1", help="the submodule whose output is sent")
    parser.add_argument("--page", default="audit.html", help="where the page goes")
    chosen = parser.parse_args()
    digits = load("mnist-5k", root_of(None))
    x, y = digits.x_train.float() / 255, digits.y_train
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    client, attacker = order[: chosen.size], order[-chosen.size :]
    model = trained(x[client], y[client], steps=max(40, chosen.size // 20))
    encoder, head = sweetspot.split(model, chosen.cut)
    audit = sweetspot.attack(
        encoder,
        head,
        test=(digits.x_test, digits.y_test),
        attacker=(digits.x_train[attacker], digits.y_train[attacker]),
        attacks="standard",
        samples=max(10, chosen.size // 50),
        budget="fast",
        name="resnet18",
    )
    print(audit)
    print(f"leak beyond the label {audit.leak:.3f} (0: what the label alone gives back, 1: everything)")
    print(f"page  {audit.page(chosen.page)}")


if __name__ == "__main__":
    main()
