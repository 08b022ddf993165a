"""A ResNet-20 for images of 32 × 32 (He et al., 2016), in the layout of the published CIFAR-10 weights.

python train.py --network examples/networks/resnet20.py:resnet20 --weights cifar10_resnet20.safetensors --cut layer2 …
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions beside a shortcut without parameters: every second pixel, and new channels of zeros."""

    def __init__(self, channels: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wide, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.stride, self.added = stride, wide - channels

    def forward(self, x: Tensor) -> Tensor:
        """The block's feature map."""
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        before, behind = self.added // 2, self.added - self.added // 2
        return F.relu(out + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, behind)))


class ResNet20(nn.Module):
    """Three stages of three blocks."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, classes)."""
        out = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.linear(out.mean((2, 3)))
        return logits


def resnet20() -> ResNet20:
    """The network for the ten classes of CIFAR-10."""
    return ResNet20()
