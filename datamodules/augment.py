"""Random changes of a training batch: crop, flip, rotate, colour, made by kornia on the device that holds the batch."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sweetspot.errors import UserError, meant

AUGMENTATIONS = ("crop", "flip", "rotate", "colour")  # in the order in which they are applied
MARGIN = 8  # a crop moves an image by at most one part in so many of its side
DEGREES = 15.0
JITTER = 0.2  # brightness, contrast and saturation are multiplied by 1 ± this


def checked_augmentations(flag: str, names: Sequence[str]) -> list[str]:
    """The augmentations that are named, each once, in the order in which they are applied; a+b names two.

    Example:
        >>> checked_augmentations("--augment", ["flip+crop"]), checked_augmentations("--augment", ["none"])
        (['crop', 'flip'], [])
    """
    named = [part for each in names for part in each.split("+")]
    if named == ["none"]:
        return []
    for name in named:
        if name == "none":
            raise UserError(f"{flag} none stands alone")
        if name not in AUGMENTATIONS:
            raise UserError(f"{flag} must be of {', '.join(AUGMENTATIONS)}; got {name}{meant(name, AUGMENTATIONS)}")
    return [name for name in AUGMENTATIONS if name in named]


class Augmentation:
    """Changes each image of a batch at random; what is random is drawn from torch's global generator.

    Args:
        names: of `AUGMENTATIONS`, in order.
        shape: of one image, (C, H, W).
    """

    def __init__(self, names: Sequence[str], shape: Sequence[int]) -> None:
        if len(shape) != 3:
            raise UserError(f"--augment {' '.join(names)} changes images, and these data are none")
        self.names, self.shape = tuple(names), tuple(shape)

    @functools.cached_property
    def layers(self) -> list[nn.Module]:
        """kornia's layers, made for the first batch: a network that is only attacked has no use for them."""
        return [layer(name, self.shape) for name in self.names]

    def __call__(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) in [0, 1], changed, still in [0, 1] and in the memory format in which they came."""
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            changed = x
            for each in self.layers:
                changed = each(changed)
            return changed.clamp(0, 1).contiguous(memory_format=torch.channels_last)


def layer(name: str, shape: Sequence[int]) -> nn.Module:
    """kornia's layer for images of a shape; borders that come into view are black."""
    from kornia import augmentation  # most runs have no use for it

    channels, height, width = shape
    made: nn.Module
    if name == "crop":
        padding = (-(-width // MARGIN), -(-height // MARGIN))
        made = augmentation.RandomCrop((height, width), padding=padding)
    elif name == "flip":
        made = augmentation.RandomHorizontalFlip()
    elif name == "rotate":
        made = augmentation.RandomRotation(DEGREES)
    else:  # without hue, which costs more than all the others together; grey images have no saturation either
        made = augmentation.ColorJitter(JITTER, JITTER, JITTER if channels == 3 else 0.0)
    return made


def augmentation_seed(seed: int, epoch: int, step: int, rank: int) -> int:
    """What a step's augmentation is drawn from, whatever else is random: a resumed run draws what an unbroken one does.

    Args:
        seed: the run's.
        epoch: counted from 0.
        step: of the epoch, counted from 0.
        rank: which device this is.
    """
    digest = hashlib.sha256(f"augment {seed} {epoch} {step} {rank}".encode()).digest()
    return int.from_bytes(digest[:7])
