"""Images on disk give what the same images in memory give, and a part of them reads that part alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sweetspot.datamodules.mapped import MappedImages, hash_into, part_of
from sweetspot.datamodules.tensors import Arrays, TensorDataModule, scaled

COUNT = 50


@pytest.fixture
def images(tmp_path: Path) -> tuple[MappedImages, Tensor]:
    """The same 50 images on disk and in memory."""
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 5, 3), dtype=np.uint8)
    pixels.tofile(tmp_path / "images.bin")
    mapped = MappedImages.open(tmp_path / "images.bin", pixels.shape, "some")
    return mapped, torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were read, each time some were."""
    seen: list[int] = []
    read = MappedImages.read

    def counting(self: MappedImages) -> Tensor:
        seen.append(len(self.rows))
        return read(self)

    monkeypatch.setattr(MappedImages, "read", counting)
    return seen


SAME: dict[str, Callable[[Tensor], Any]] = {
    "indices": lambda x: x[torch.tensor([3, 1, 49, -1, 3])],
    "mask": lambda x: x[torch.arange(COUNT) % 3 == 0],
    "list": lambda x: x[[4, 2]],
    "one": lambda x: x[7],
    "the last": lambda x: x[-1],
    "slice": lambda x: x[2:-3],
    "steps": lambda x: x[::7],
    "slice of a slice": lambda x: x[10:][:5],
    "indices of a slice": lambda x: x[10:][torch.tensor([0, 2])],
    "pixels": lambda x: x[:, 0, 2:4],
    "parts": lambda x: torch.cat([scaled(part) for part in x.split(8)]),
    "channels": lambda x: torch.cat(x.split(1, dim=1)),
    "floats": lambda x: scaled(x),
    "mean": lambda x: x.float().mean(),
    "compared": lambda x: x == x[:1].expand_as(x),
    "shape": lambda x: torch.tensor([len(x), x.ndim, x.numel(), *x.shape, *x.size()]),
    "stacked": lambda x: torch.stack([x[0], x[1]]),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("what", SAME)
def test_they_behave_as_in_memory(what: str, inference: bool, images: tuple[MappedImages, Tensor]) -> None:
    with torch.inference_mode(inference):
        ours, theirs = (SAME[what](x) for x in images)
        assert torch.equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_only_what_is_used_is_read(images: tuple[MappedImages, Tensor], reads: list[int]) -> None:
    mapped, _ = images
    parts = mapped.split(8)
    few = part_of(mapped, torch.arange(0, COUNT, 2))
    assert (len(parts), few.shape, mapped[5:].shape) == (7, (25, 3, 6, 5), (45, 3, 6, 5))
    assert reads == []
    assert few[torch.tensor([1, 2])].shape == (2, 3, 6, 5)
    assert scaled(parts[0].to("cpu")).shape == (8, 3, 6, 5)
    assert reads == [2, 8]


def test_an_index_that_is_not_there_is_an_error(images: tuple[MappedImages, Tensor]) -> None:
    with pytest.raises(IndexError):
        images[0][torch.tensor([COUNT])]


def test_a_datamodule_gives_the_same_batches_and_reads_no_more_than_them(
    images: tuple[MappedImages, Tensor], reads: list[int]
) -> None:
    y = torch.arange(COUNT) % 3
    modules = [
        TensorDataModule(Arrays("a", "b", x, y, x, y, 3), batch_size=6, seed=1, validation_fraction=0.2, limit_train=40)
        for x in images
    ]
    ours, theirs = modules
    assert reads == []
    loaders = [(each.train_dataloader(), each.val_dataloader(), each.test_dataloader()) for each in modules]
    sizes = []
    for mapped, plain in zip(*loaders, strict=True):
        for a, b in zip(mapped, plain, strict=True):
            assert torch.equal(a[0], b[0])
            assert torch.equal(a[1], b[1])
            sizes.append(len(b[1]))
    assert reads == sizes == [6, 6, 6, 6, 7, 9, 50], "each batch and nothing else"
    assert ours.pixels() == theirs.pixels()
    assert ours.doubts() == theirs.doubts() == []
    assert ours.shape == theirs.shape == (3, 6, 5)


def test_a_hash_of_parts_is_the_hash_of_the_whole(images: tuple[MappedImages, Tensor]) -> None:
    def hashed(x: Tensor) -> str:
        made_of = hashlib.sha256()
        hash_into(made_of, x)
        return made_of.hexdigest()

    long, number = torch.arange(10_000), torch.tensor(3.0)
    assert hashed(long) == hashlib.sha256(long.numpy().tobytes()).hexdigest()
    assert hashed(number) == hashlib.sha256(number.numpy().tobytes()).hexdigest()
    mapped, _ = images
    assert len({hashed(mapped), hashed(mapped[1:]), hashed(mapped.at(torch.arange(COUNT).flip(0)))}) == 3
    assert hashed(mapped) == hashed(mapped[:])
