"""Images that stay on disk: a tensor whose rows are read when they are used, and not before."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

HASHED = 4096  # rows that are hashed together
OF_THE_SHAPE = {Tensor.size, Tensor.dim, Tensor.numel, Tensor.nelement, Tensor.__len__, Tensor.is_floating_point}


class MappedImages(Tensor):
    """Some images of a file, as uint8 (N, C, H, W): to take a part of them reads that part alone.

    A slice, or `split`, reads nothing and gives images of the same kind; an index reads what it names. Whatever else is
    done with them reads all of them, as if they were an ordinary tensor.

    Args:
        file: all images of the file, channels last (M, H, W, C), mapped into memory.
        rows: which of them these are, (N,).
        identity: what tells the file from others.
    """

    file: Tensor
    rows: Tensor
    identity: str

    @staticmethod
    def __new__(cls: type[MappedImages], file: Tensor, rows: Tensor, identity: str) -> MappedImages:
        _, height, width, channels = file.shape
        made: MappedImages = Tensor._make_wrapper_subclass(cls, (len(rows), channels, height, width), dtype=file.dtype)
        made.file, made.rows, made.identity = file, rows, identity
        return made

    @classmethod
    def open(cls, path: Path, shape: tuple[int, int, int, int], identity: str) -> MappedImages:
        """All images of a file that holds (M, H, W, C) bytes and nothing else."""
        mapped = np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file cannot be written through it, and is not
            file = torch.from_numpy(mapped)
        return cls(file, torch.arange(len(file)), identity)

    def at(self, indices: Tensor | slice) -> MappedImages:
        """Those of these indices, without reading them."""
        return MappedImages(self.file, self.rows[indices], self.identity)

    def read(self) -> Tensor:
        """All of them as an ordinary tensor, in memory."""
        return self.file.index_select(0, self.rows.reshape(-1)).permute(0, 3, 1, 2)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"MappedImages({tuple(self.shape)}, {self.identity})"

    def __getitem__(self, indices: Any) -> Tensor:
        if isinstance(indices, slice):
            return self.at(indices)
        if isinstance(indices, int):
            return self.at(torch.tensor([indices])).read()[0]
        first = torch.as_tensor(indices) if isinstance(indices, list | np.ndarray) else indices
        if isinstance(first, Tensor) and first.ndim == 1:
            return self.at(first).read()
        return self.read()[indices]

    def split(self, split_size: Any, dim: int = 0) -> Any:
        """Parts of so many images each, not read yet."""
        if dim:
            return self.read().split(split_size, dim)
        return tuple(MappedImages(self.file, rows, self.identity) for rows in self.rows.split(split_size))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in OF_THE_SHAPE or getattr(func, "__name__", "") == "__get__":
            return super().__torch_function__(func, types, args, kwargs or {})
        read_args, read_kwargs = read_all((args, kwargs or {}))
        return func(*read_args, **read_kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        read_args, read_kwargs = read_all((args, kwargs or {}))
        return func(*read_args, **read_kwargs)


def read_all(arguments: Any) -> Any:
    """Arguments with ordinary tensors in the place of images on disk."""
    return tree_map(lambda each: each.read() if isinstance(each, MappedImages) else each, arguments)


def part_of(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of these indices: a copy in memory, or, of images on disk, images on disk."""
    return x.at(indices) if isinstance(x, MappedImages) else x[indices]


def hash_into(made_of: Any, x: Tensor) -> None:
    """Give a hash of hashlib what tells a tensor from others: its bytes, or, of images on disk, which they are."""
    if isinstance(x, MappedImages):
        made_of.update(x.identity.encode())
        made_of.update(x.rows.numpy().tobytes())
        return
    x = x.detach()
    for part in x.split(HASHED) if x.ndim else [x]:
        made_of.update(part.cpu().contiguous().numpy().tobytes())
