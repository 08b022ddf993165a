"""TensorDataModule: a dataset as one tensor, in memory or on disk, in class-balanced batches scaled on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import lightning
import torch
from torch import Tensor

from sweetspot.datamodules.balanced import BalancedBatches, balanced_order
from sweetspot.datamodules.mapped import MappedImages, part_of
from sweetspot.errors import UserError

SPLIT_SEED = 0  # which examples are held out, or kept by a limit, is the same for every run, whatever its own seed
EVALUATION_BATCH = 1000
PIXEL_SAMPLE = 20_000  # images on disk from which mean and standard deviation of their pixels are taken
EVALUATION_BLOCKS = 32  # of text: every position has as many logits as there are tokens


@dataclass
class Arrays:
    """A dataset: images (N, C, H, W) as uint8 or as float in [0, 1], vectors (N, d) as float.

    Args:
        name: what the run's record calls it.
        source: where it really came from.
        identity: a hash of its content, by which it is known wherever it lies; empty where its name says what it is.
        about: what its record says besides.
    """

    name: str
    source: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    validation: tuple[Tensor, Tensor] | None = None  # where the data bring their own; else split off the training set
    identity: str = ""
    about: dict[str, Any] = field(default_factory=dict)


class Batches(Protocol):
    """Batches of indices; one with `set_epoch` is told the epoch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Tensor]: ...


class TensorBatches:
    """Batches (x, y) out of two tensors; Lightning takes any iterable, and this one costs an `index_select` a batch."""

    def __init__(self, x: Tensor, y: Tensor, sampler: Batches) -> None:
        self.x, self.y = x, y
        self.sampler = sampler  # Lightning tells it the epoch,
        self.batch_sampler = None  # and looks for both names

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for indices in self.sampler:
            yield self.x[indices], self.y[indices]


class TensorDataModule(lightning.LightningDataModule):
    """Training, validation and test batches of one dataset.

    Args:
        arrays: the dataset.
        batch_size: examples in one optimiser step, over all devices together.
        seed: the run's seed: it orders the training batches.
        validation_fraction: the part of the *training* set that is held out for the validation curve.
        limit_train: use only so many training examples, class-balanced (0: all).
        limit_test: use only so many test examples, class-balanced (0: all).
    """

    def __init__(
        self,
        arrays: Arrays,
        batch_size: int = 100,
        seed: int = 0,
        validation_fraction: float = 0.05,
        limit_train: int = 0,
        limit_test: int = 0,
    ) -> None:
        super().__init__()
        self.arrays, self.batch_size, self.seed = arrays, batch_size, seed
        train, held_out = torch.arange(len(arrays.y_train)), torch.arange(0)
        if limit_train:
            train = limited(arrays.y_train, limit_train, "--limit-train", arrays.classes)
        if arrays.validation is None and validation_fraction > 0:
            train, held_out = split_off(arrays.y_train, train, validation_fraction)
        self.train = part_of(arrays.x_train, train), arrays.y_train[train]
        self.validation = arrays.validation or (part_of(arrays.x_train, held_out), arrays.y_train[held_out])
        test = torch.arange(len(arrays.y_test))
        if limit_test:
            test = limited(arrays.y_test, limit_test, "--limit-test", 2)
        self.test = part_of(arrays.x_test, test), arrays.y_test[test]
        if len(test) < 2:
            raise UserError(f"the test set must hold at least 2 examples; {arrays.name} has {len(test)}")
        if batch_size < 1:
            raise UserError(f"batch_size must be at least 1; got {batch_size}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.arrays.classes

    def sample_of_tests(self, count: int) -> Tensor:
        """Indices of `count` test examples, class-balanced, the same for every run; a larger sample holds a smaller."""
        return limited(self.test[1], count, "--samples", 1)

    def pixels(self) -> dict[str, list[float]] | None:
        """Mean and standard deviation of the training images by channel, in [0, 1]; None for vectors.

        Of many images on disk a sample is read.
        """
        x = self.train[0]
        if x.ndim != 4:
            return None
        if isinstance(x, MappedImages) and len(x) > PIXEL_SAMPLE:
            x = x.at(torch.linspace(0, len(x) - 1, PIXEL_SAMPLE).long())
        sums = torch.zeros(2, x.shape[1], dtype=torch.float64)
        for chunk in x.split(EVALUATION_BATCH):
            pixels = scaled(chunk).double()
            sums += torch.stack([pixels.sum(dim=(0, 2, 3)), pixels.square().sum(dim=(0, 2, 3))])
        mean, square = sums / (x.numel() / x.shape[1])
        std = (square - mean.square()).clamp_min(0).sqrt().clamp_min(1 / 255)  # a blank channel is left as it is
        return {"mean": [round(m, 6) for m in mean.tolist()], "std": [round(s, 6) for s in std.tolist()]}

    def doubts(self) -> list[str]:
        """Why nothing, or hardly anything, can be learnt from these data with this batch size; empty: it can."""
        x, y = self.train
        found = []
        if all(torch.equal(part, x[:1].expand_as(part)) for part in x.split(EVALUATION_BATCH)):
            found.append(f"all {len(x):,} training inputs are the same: nothing can be learnt from them")
        if len(y.unique()) == 1:
            found.append(f"all {len(y):,} training examples are of one class: nothing can be learnt from them")
        if self.batch_size > len(x):
            examples = f"{len(x):,} training examples"
            found.append(f"--batch-size {self.batch_size:,} is more than the {examples}: every epoch is one step")
        return found

    def record(self) -> dict[str, Any]:
        """What `results.json` says of the data."""
        return {
            "name": self.arrays.name,
            "source": self.arrays.source,
            "identity": self.arrays.identity or self.arrays.name,
            "train": len(self.train[1]),
            "validation": len(self.validation[1]),
            "test": len(self.test[1]),
            "shape": list(self.shape),
            "classes": self.classes,
            **self.arrays.about,
        }

    def train_dataloader(self) -> TensorBatches:
        rank, world_size = self.place()
        return TensorBatches(*self.train, BalancedBatches(self.train[1], self.batch_size, self.seed, rank, world_size))

    def val_dataloader(self) -> TensorBatches:
        return self.in_order(self.validation)

    def test_dataloader(self) -> TensorBatches:
        return self.in_order(self.test)

    def in_order(self, split: tuple[Tensor, Tensor]) -> TensorBatches:
        """Every example of a split once, in order; on several devices each takes its own part."""
        rank, world_size = self.place()
        if len(split[1]) < world_size:
            rank, world_size = 0, 1  # too few to share: every device looks at all of them
        indices = torch.arange(len(split[1]))[rank::world_size]
        return TensorBatches(*split, list(indices.split(evaluation_batch(split[1]))) if len(indices) else [])

    def place(self) -> tuple[int, int]:
        """(rank, world size) of this process."""
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)

    def on_after_batch_transfer(self, batch: tuple[Tensor, Tensor], dataloader_idx: int) -> tuple[Tensor, Tensor]:
        x, y = batch
        return scaled(x), y


def scaled(x: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]; floats as they are. Done on the device, so that only bytes travel.

    Images come out channels last, the layout in which convolutions run fastest.
    """
    if x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def evaluation_batch(y: Tensor) -> int:
    """How many examples are looked at together, by their answers: one class each (N,), or a token a position (N, T)."""
    return EVALUATION_BATCH if y.ndim == 1 else EVALUATION_BLOCKS


def limited(y: Tensor, limit: int, name: str, least: int) -> Tensor:
    """Indices of `limit` examples, as balanced as the classes allow, without repeats, in the data's own order."""
    if limit < least:
        raise UserError(f"{name} must be at least {least} for this dataset, or 0 for all; got {limit}")
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    order = balanced_order(y, len(y) + len(torch.unique(y)) * int(torch.bincount(y).max()), generator)
    first = torch.full((len(y),), len(order)).scatter_reduce(
        0, order, torch.arange(len(order)), "amin"
    )  # (N,) when each one came first
    return first.argsort(stable=True)[: min(limit, len(y))].sort().values


def split_off(y: Tensor, train: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """(training, validation) indices: the same fraction of every class is held out, never a class's last example."""
    generator = torch.Generator().manual_seed(SPLIT_SEED)
    held_out = torch.zeros(len(train), dtype=torch.bool)
    for c in torch.unique(y[train]):
        members = (y[train] == c).nonzero().squeeze(1)
        count = min(round(len(members) * fraction), len(members) - 1)
        held_out[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return train[~held_out], train[held_out]
