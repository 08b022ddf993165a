"""MNIST, Fashion-MNIST, SVHN and CIFAR-10 through torchvision: found under the data root, or downloaded."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torchvision import datasets

from sweetspot.datamodules.tensors import Arrays
from sweetspot.errors import UserError, first_line

REACH_SECONDS = 5.0  # how long a mirror may take to answer before the machine counts as offline
STALL_SECONDS = 30.0  # how long a download may stand still


@dataclass(frozen=True)
class TorchvisionSet:
    """How one dataset is opened, and where torchvision would fetch it.

    Args:
        name: what `--dataset` calls it.
        open: `open(root, train, download)` gives torchvision's dataset.
        mirrors: addresses to try before a download; the first that answers proves the network.
        layout: what has to lie under the data root.
    """

    name: str
    open: Callable[[Path, bool, bool], Any]
    mirrors: tuple[str, ...]
    layout: str


def svhn(root: Path, train: bool, download: bool) -> Any:
    return datasets.SVHN(str(root), split="train" if train else "test", download=download)


SETS = {
    chosen.name: chosen
    for chosen in (
        TorchvisionSet(
            "mnist",
            lambda root, train, download: datasets.MNIST(str(root), train=train, download=download),
            tuple(datasets.MNIST.mirrors),
            "MNIST/raw/train-images-idx3-ubyte",
        ),
        TorchvisionSet(
            "fashion-mnist",
            lambda root, train, download: datasets.FashionMNIST(str(root), train=train, download=download),
            tuple(datasets.FashionMNIST.mirrors),
            "FashionMNIST/raw/train-images-idx3-ubyte",
        ),
        TorchvisionSet("svhn", svhn, (datasets.SVHN.split_list["train"][0],), "train_32x32.mat"),
        TorchvisionSet(
            "cifar10",
            lambda root, train, download: datasets.CIFAR10(str(root), train=train, download=download),
            (datasets.CIFAR10.url,),
            "cifar-10-batches-py/data_batch_1",
        ),
    )
}


class NotAvailableError(UserError):
    """The dataset is neither on disk nor to be had from its mirrors.

    Args:
        chosen: the dataset.
        root: where it is not.
        why: it could not be fetched, as the second half of a sentence.
    """

    def __init__(self, chosen: TorchvisionSet, root: Path, why: str) -> None:
        super().__init__(
            f"{chosen.name} is not under {root} (expected {root / chosen.layout}) and {why}; "
            f"copy it there, or say with --data-root where it lies"
        )
        self.why = why


def torchvision_set(name: str, root: Path) -> Arrays:
    """The dataset from `root`; where it is not there, it is downloaded to `root` first."""
    chosen = SETS[name]
    how = "on disk"
    try:
        train, test = open_both(chosen, root)
    except RuntimeError as missing:
        if "not found" not in str(missing).lower():
            raise UserError(
                f"{name} under {root} cannot be read ({first_line(missing)}); remove it to download it anew"
            ) from missing
        download(chosen, root)
        train, test = open_both(chosen, root)
        how = "downloaded"
    x_train, y_train = tensors(train)
    x_test, y_test = tensors(test)
    return Arrays(name, f"torchvision ({how})", x_train, y_train, x_test, y_test, classes=10)


def open_both(chosen: TorchvisionSet, root: Path) -> tuple[Any, Any]:
    """torchvision's training and test set, from disk only."""
    try:
        return chosen.open(root, True, False), chosen.open(root, False, False)
    except RuntimeError:
        raise  # torchvision's own "Dataset not found"
    except Exception as broken:  # a damaged file fails in as many ways as there are readers
        raise UserError(
            f"{chosen.name} under {root} is damaged ({first_line(broken)}); remove it to download it anew"
        ) from broken


def download(chosen: TorchvisionSet, root: Path) -> None:
    """Fetch the dataset into `root`, one process at a time, or say within seconds that it cannot be had."""
    if not any(reachable(mirror) for mirror in chosen.mirrors):
        raise NotAvailableError(chosen, root, "its mirrors cannot be reached")
    try:
        root.mkdir(parents=True, exist_ok=True)
        print(f"downloading {chosen.name} to {root} …", flush=True)
        with FileLock(root / f".{chosen.name}.lock"), quiet(), stall_limit(STALL_SECONDS):
            for train in (True, False):
                chosen.open(root, train, True)
    except Exception as error:  # filters, proxies, TLS and archives fail in as many ways as there are libraries below
        if is_disk_trouble(error):  # which must not make the default a smaller dataset
            raise UserError(
                f"{chosen.name} could not be downloaded to {root} ({first_line(error)}); make room, or choose another "
                f"--data-root"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]  # torchvision's says it last
        raise NotAvailableError(chosen, root, f"it could not be downloaded ({reason})") from error


def is_disk_trouble(error: Exception) -> bool:
    """Whether a download failed on this side: a folder that cannot be made or written, or a disk that is full."""
    if not isinstance(error, OSError) or isinstance(error, urllib.error.URLError):
        return False
    return error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def reachable(url: str, seconds: float = REACH_SECONDS) -> bool:
    """Whether anything answers at `url` within `seconds`; in a thread, because a name look-up knows no time limit.

    An answer is no promise: a mirror's folder may refuse to be listed and yet hold the files, and a filter may answer
    in its place. Only the download tells.
    """
    answers: list[bool] = []

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "sweetspot"})
        try:
            with urllib.request.urlopen(request, timeout=seconds):
                answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)
        except (OSError, ValueError):
            answers.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers and answers[0])


@contextlib.contextmanager
def stall_limit(seconds: float) -> Iterator[None]:
    """Let no socket wait longer than this: torchvision's downloads have no limit of their own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what torchvision prints on the way."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def tensors(dataset: Any) -> tuple[Tensor, Tensor]:
    """torchvision's arrays, whatever their kind, as uint8 (N, C, H, W) and int64 (N,)."""
    x = torch.as_tensor(dataset.data)
    y = torch.as_tensor(np.asarray(dataset.labels if hasattr(dataset, "labels") else dataset.targets)).long()
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[-1] == 3:
        x = x.permute(0, 3, 1, 2)
    return x.contiguous(), y
