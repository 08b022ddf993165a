"""Tensors in a user's own file: .pt, .npy, .npz or .safetensors; data only, nothing that runs."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from sweetspot.errors import UserError

KINDS = ".pt, .npy, .npz or .safetensors"


def load_tensors(flag: str, path: Path) -> Any:
    """What a file holds, on the CPU: a tensor, or a list or dict of tensors and plain numbers.

    What is wrong is said in our own words: libraries advise to load such a file unsafely.
    """
    check_regular_file(flag, path)
    try:
        loaded = loaded_from(path)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{flag} {path} cannot be read: it holds more than tensors, which may run code when loaded, or is damaged; "
            f"save the tensors alone, in a {KINDS} file"
        ) from error
    except OSError as error:
        raise UserError(f"{flag} {path} cannot be read ({error.strerror or type(error).__name__})") from error
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise UserError(f"{flag} {path} cannot be read as tensors: it is damaged, or no {KINDS} file") from error
    for tensor in tensors_in(loaded):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
            raise UserError(f"{flag} {path} holds a sparse, quantised, nested or meta tensor; save it as a dense one")
    return loaded


def check_regular_file(flag: str, path: Path) -> None:
    """Refuse what cannot be read as a file: a pipe would be waited for without end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # not there, a name that is too long, a loop of links, a zero byte
        raise UserError(f"{flag} {path} cannot be read ({getattr(error, 'strerror', error)})") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{flag} {path} cannot be read: it is no regular file")


def loaded_from(path: Path) -> Any:
    """The content of a file, by how its name ends."""
    kind = path.suffix.lower()
    if kind == ".safetensors":
        return load_file(path)
    if kind not in (".npy", ".npz"):
        return torch.load(path, map_location="cpu", weights_only=True)
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return as_tensor(loaded)
    with loaded:
        return {name: as_tensor(loaded[name]) for name in loaded.files}


def as_tensor(array: np.ndarray) -> Tensor:
    """An array of numpy, in whatever byte order, as a tensor of its own."""
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))


def tensors_in(loaded: Any) -> Iterator[Tensor]:
    """The tensors in what was loaded, however deep."""
    if isinstance(loaded, Tensor):
        yield loaded
    elif isinstance(loaded, dict | list | tuple):
        for each in loaded.values() if isinstance(loaded, dict) else loaded:
            yield from tensors_in(each)
