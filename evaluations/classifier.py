"""An independent classifier: does a reconstruction still look like its class to a network that is not the victim?"""

from __future__ import annotations

import hashlib
from pathlib import Path

import filelock
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.datamodules.mapped import hash_into
from sweetspot.datamodules.tensors import TensorDataModule, scaled
from sweetspot.errors import UserError
from sweetspot.files import save_tensors
from sweetspot.lightning_modules.networks import build_network
from sweetspot.progress import steps_shown
from sweetspot.runs.checkpoints import restored

STEPS, BATCH, PEAK_LR = 1000, 128, 3e-3
MOST_EPOCHS = 100  # of few inputs: more teach nothing, and take minutes of large images
LARGEST = 64  # pixels a side that a class is recognised by
SEED = 20_101_146  # no run's own seed: the classifier shares neither weights nor batches with a victim


def independent_classifier(datamodule: TensorDataModule, cache: Path, device: torch.device) -> nn.Module | None:
    """A classifier trained on the same training split, once for all runs on these data; None where nothing fits.

    It is a LeNet5 for the images that LeNet5 takes, an MLP for vectors, and a small convolutional network for others.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        try:
            network = classifier_for(datamodule)
        except UserError:
            return None
    network = network.to(device)
    file = cache / f"classifier-{fingerprint(*datamodule.train)}.pt"
    if not restored(network, file):
        cache.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(file.with_suffix(".lock")):  # runs of a grid need it at the same time
            if not restored(network, file):
                train_classifier(network, *datamodule.train, device)
                save_tensors(file, network.state_dict())
    return network.eval().requires_grad_(False)


def classifier_for(datamodule: TensorDataModule) -> nn.Module:
    """A network for inputs of this shape, with fresh weights."""
    name = "lenet" if len(datamodule.shape) == 3 else "mlp"
    pixels = datamodule.pixels()
    try:
        return build_network(name, datamodule.shape, datamodule.classes, 1, "default", pixels)
    except UserError:  # another shape
        if pixels is None:
            raise
        return Convolutional(datamodule.shape, datamodule.classes, pixels)


class Convolutional(nn.Module):
    """Logits (B, classes) of images (B, C, H, W) of any size; larger ones are looked at in `LARGEST` pixels a side.

    Args:
        shape: of one image.
        classes: how many there are.
        pixels: mean and standard deviation by channel.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, pixels: dict[str, list[float]]) -> None:
        super().__init__()
        channels, *sides = shape
        self.sides = [min(side, LARGEST) for side in sides]
        self.register_buffer("mean", torch.tensor(pixels["mean"]).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(pixels["std"]).view(-1, 1, 1))
        self.mean: Tensor
        self.std: Tensor
        layers: list[nn.Module] = []
        at, width, least = channels, 16, min(self.sides)
        while least >= 8:
            layers += [nn.Conv2d(at, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU()]
            at, width, least = width, min(2 * width, 128), -(-least // 2)
        layers += [nn.Conv2d(at, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        pooled = nn.AdaptiveMaxPool2d(2)
        self.layers = nn.Sequential(*layers, pooled, nn.Flatten(), nn.Linear(4 * width, classes))

    def forward(self, x: Tensor) -> Tensor:
        if list(x.shape[-2:]) != self.sides:
            x = F.interpolate(x, self.sides, mode="bilinear", antialias=True)
        logits: Tensor = self.layers((x - self.mean) / self.std)
        return logits


def train_classifier(network: nn.Module, x: Tensor, y: Tensor, device: torch.device) -> None:
    """Adam with one cycle of the step size."""
    steps = min(STEPS, MOST_EPOCHS * -(-len(y) // BATCH))
    generator = torch.Generator().manual_seed(SEED)
    optimiser = torch.optim.Adam(network.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_LR, total_steps=steps)
    with steps_shown("independent classifier", steps) as done:
        for step in range(1, steps + 1):
            chosen = torch.randint(len(y), (BATCH,), generator=generator)
            seen, wanted = (each[chosen].to(device, non_blocking=True) for each in (x, y))  # no step waits for them
            loss = F.cross_entropy(network(scaled(seen)), wanted)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            done(step)


def fingerprint(x: Tensor, y: Tensor) -> str:
    """What tells one training split from another."""
    made_of = hashlib.sha256()
    hash_into(made_of, x)
    hash_into(made_of, y)
    return made_of.hexdigest()[:12]
