"""Datasets by name, file, folder or from the hub, as class-balanced batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sweetspot.datamodules.embedded import mnist_5k
from sweetspot.datamodules.folder import image_folder
from sweetspot.datamodules.hub import PREFIX, hub_images
from sweetspot.datamodules.image_cache import resized
from sweetspot.datamodules.npz import npz
from sweetspot.datamodules.synthetic import synthetic
from sweetspot.datamodules.tensors import Arrays, TensorDataModule
from sweetspot.datamodules.torchvision_sets import SETS, NotAvailableError, torchvision_set
from sweetspot.errors import UserError, meant

NAMES = sorted([*SETS, "mnist-5k", "synthetic"])

__all__ = ["NAMES", "Arrays", "NotAvailableError", "TensorDataModule", "load"]


def load(dataset: str | None, root: Path, seed: int = 0, image_size: int = 0, skip_corrupt: bool = False) -> Arrays:
    """The dataset that `--dataset` names: one of `NAMES`, an `.npz` file, a folder of images or a hub dataset.

    Without a name it is MNIST, from disk or downloaded; where it cannot be had, the 5,000 embedded digits, and says so.

    Args:
        dataset: its name; a folder that is called like one of `NAMES` is named with a / at its end.
        root: where datasets with a name lie.
        seed: of data that are drawn.
        image_size: the shorter side is scaled to so many pixels, and the middle is cut out as a square; 0: as they are.
        skip_corrupt: whether image files that cannot be read are left out.
    """
    if dataset is not None and dataset.startswith(PREFIX):
        return hub_images(dataset, image_size, skip_corrupt)
    if dataset is not None and is_folder(dataset):
        return image_folder(Path(dataset).expanduser(), image_size, skip_corrupt)
    arrays = in_memory(dataset, root, seed)
    if not image_size:
        return arrays
    if arrays.x_train.ndim != 4:
        raise UserError(f"--image-size {image_size} scales images, and {arrays.name} holds vectors")
    x_train, x_test = (resized(x, image_size) for x in (arrays.x_train, arrays.x_test))
    return dataclasses.replace(arrays, x_train=x_train, x_test=x_test)


def is_folder(dataset: str) -> bool:
    """Whether a folder of images is meant, and not a dataset with a name."""
    named = dataset.lower().replace("_", "-") in NAMES
    return bool(dataset) and not named and Path(dataset).expanduser().is_dir()


def in_memory(dataset: str | None, root: Path, seed: int) -> Arrays:
    """The dataset of a name, or of an `.npz` file."""
    if dataset is None:
        try:
            return torchvision_set("mnist", root)
        except NotAvailableError as missing:
            print(
                f"MNIST is not under {root} and {missing.why}: using the 5,000 embedded digits (mnist-5k)", flush=True
            )
            return mnist_5k()
    if dataset.endswith(".npz"):
        if not Path(dataset).is_file():
            raise UserError(
                f"dataset {dataset} is not there; give the path of an .npz file, or one of {', '.join(NAMES)}"
            )
        return npz(Path(dataset))
    name = dataset.lower().replace("_", "-")
    if name in SETS:
        return torchvision_set(name, root)
    if name == "mnist-5k":
        return mnist_5k()
    if name == "synthetic":
        return synthetic(seed)
    raise UserError(
        f"dataset must be one of {', '.join(NAMES)}, or an .npz file, a folder of images or hf:OWNER/NAME; "
        f"got {dataset}{meant(name, NAMES)}"
    )
