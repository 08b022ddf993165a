"""Any dataset in one `.npz` file with x_train, y_train, x_test, y_test (the Keras convention), checked before use."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sweetspot.datamodules.tensors import Arrays
from sweetspot.errors import UserError

MOST_CLASSES = 100_000
KEYS = ("x_train", "y_train", "x_test", "y_test")


def npz(path: Path) -> Arrays:
    """The dataset in `path`, named after the file; its SHA-256 goes on record: a changed file is another dataset."""
    arrays = arrays_in(path)
    x_train, x_test = images_or_vectors(arrays, path, "x_train"), images_or_vectors(arrays, path, "x_test")
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"{path}: x_train and x_test must hold inputs of one shape; "
            f"got {tuple(x_train.shape[1:])} and {tuple(x_test.shape[1:])}"
        )
    y_train, y_test = labels(arrays, path, "y_train", len(x_train)), labels(arrays, path, "y_test", len(x_test))
    classes = int(y_train.max()) + 1
    missing = (torch.bincount(y_train, minlength=classes) == 0).nonzero()
    if classes < 2 or len(missing):
        why = f"class {int(missing[0])} has no example" if len(missing) else "there is only one class"
        raise UserError(f"{path}: y_train must hold the labels 0 … K−1, each at least once, K ≥ 2; {why}")
    if int(y_test.max()) >= classes:
        raise UserError(f"{path}: y_test has the label {int(y_test.max())}, but y_train knows only 0 … {classes - 1}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    source = f"{path.name}, sha256 {digest}"
    return Arrays(path.stem, source, x_train, y_train, x_test, y_test, classes, identity=digest)


def arrays_in(path: Path) -> dict[str, np.ndarray]:
    """The four arrays of the file; never an object array, which would be a pickle."""
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in KEYS if key not in file]
            if missing:
                raise UserError(f"{path}: the array {missing[0]} is missing; an .npz dataset needs {', '.join(KEYS)}")
            arrays = {key: file[key] for key in KEYS}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise UserError(f"{path}: {', '.join(KEYS)} must be arrays")
            return arrays
    except UserError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as it has bytes
        damaged = "it is damaged, or holds Python objects instead of numbers"  # numpy advises to load these unsafely
        why = getattr(error, "strerror", None) or damaged
        raise UserError(f"{path} cannot be read as an .npz dataset: {why}") from error


def images_or_vectors(arrays: dict[str, np.ndarray], path: Path, key: str) -> Tensor:
    """(N, H, W), (N, H, W, C) or (N, C, H, W) as (N, C, H, W); (N, d) as it is."""
    x = arrays[key]
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise UserError(
            f"{path}: {key} must have the shape (N, H, W), (N, H, W, C), (N, C, H, W) or (N, d), none of them 0; "
            f"got {x.shape}"
        )
    if x.dtype != np.uint8:
        if x.dtype.kind not in "fiub":
            raise UserError(f"{path}: {key} must hold uint8 or float values; got {x.dtype}")
        x = x.astype(np.float32)
        if not np.isfinite(x).all():
            raise UserError(f"{path}: {key} holds NaN or infinite values; clean them before training")
        if x.ndim > 2 and (x.min() < 0 or x.max() > 1):
            raise UserError(
                f"{path}: {key} must hold images as uint8, or as float in [0, 1]; "
                f"got values in [{x.min():.4g}, {x.max():.4g}]"
            )
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    if tensor.dtype == torch.uint8 and tensor.ndim == 2:
        tensor = tensor.float()  # bytes are pixels only in an image
    if tensor.ndim == 3:
        return tensor[:, None]
    if tensor.ndim == 4 and tensor.shape[1] not in (1, 3):
        if tensor.shape[3] not in (1, 3):
            raise UserError(f"{path}: {key} must have 1 or 3 channels, first or last; got {tuple(tensor.shape)}")
        return tensor.permute(0, 3, 1, 2).contiguous()
    return tensor


def labels(arrays: dict[str, np.ndarray], path: Path, key: str, count: int) -> Tensor:
    """Labels as int64 (N,), from (N,) or (N, 1)."""
    y = arrays[key]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.shape != (count,):
        raise UserError(f"{path}: {key} must have the shape ({count},), one label for each input; got {y.shape}")
    if y.dtype.kind not in "iu":
        raise UserError(f"{path}: {key} must hold whole numbers; got {y.dtype}")
    if y.min() < 0:
        raise UserError(f"{path}: {key} has the label {y.min()}; labels start at 0")
    if y.max() >= MOST_CLASSES:
        raise UserError(
            f"{path}: {key} has the label {y.max()}; labels are 0 … K−1 for K classes, K ≤ {MOST_CLASSES:,}"
        )
    return torch.from_numpy(y.astype(np.int64))
