"""Datasets by name or file, as class-balanced batches."""

from __future__ import annotations

from pathlib import Path

from sweetspot.datamodules.embedded import mnist_5k
from sweetspot.datamodules.npz import npz
from sweetspot.datamodules.synthetic import synthetic
from sweetspot.datamodules.tensors import Arrays, TensorDataModule
from sweetspot.datamodules.torchvision_sets import SETS, NotAvailableError, torchvision_set
from sweetspot.errors import UserError, meant

NAMES = sorted([*SETS, "mnist-5k", "synthetic"])

__all__ = ["NAMES", "Arrays", "NotAvailableError", "TensorDataModule", "load"]


def load(dataset: str | None, root: Path, seed: int = 0) -> Arrays:
    """The dataset that `--dataset` names: one of `NAMES` or an `.npz` file.

    Without a name it is MNIST, from disk or downloaded; where it cannot be had, the 5,000 embedded digits, and says so.
    """
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
    raise UserError(f"dataset must be one of {', '.join(NAMES)}, or an .npz file; got {dataset}{meant(name, NAMES)}")
