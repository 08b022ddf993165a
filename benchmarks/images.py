"""A folder of images from our cache against torchvision's ImageFolder: images a second and memory, in one run.

python benchmarks/images.py                     # 20,000 images of 64 px, two workers for torchvision's DataLoader
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import psutil
import torch
from PIL import Image
from torch import Tensor

from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.tensors import scaled

SIDE, CLASSES, BATCH = 64, 10, 100
Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]


def write_images(folder: Path, count: int) -> None:
    """So many PNGs, each a smooth pattern with a little noise, in train/ and a few of them in test/."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    for number in range(count + 10 * CLASSES):
        label = number % CLASSES
        split = "train" if number < count else "test"
        waves = [np.sin(2 * np.pi * (label * rows + shift * columns)) for shift in rng.uniform(0, 5, 3)]
        image = (127 + 100 * np.stack(waves, axis=2) + rng.normal(0, 4, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)
        place = folder / split / f"class{label}" / f"{number:06}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place, compress_level=1)


def ours(folder: Path) -> Batches:
    """Our batches, as training sees them."""
    datamodule = TensorDataModule(load(str(folder), Path(".")), BATCH, validation_fraction=0)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in datamodule.train_dataloader():
            yield scaled(x), y

    return batches


def theirs(folder: Path, workers: int) -> Batches:
    """torchvision's, shuffled."""
    from torchvision import datasets, transforms

    files = datasets.ImageFolder(str(folder / "train"), transforms.ToTensor())
    loader: Any = torch.utils.data.DataLoader(
        files, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return lambda: iter(loader)


def private_memory() -> float:
    """MB that are not a file's, of this process and its children together; what they share counts once (Linux).

    Pages of a mapped file that were only read are not among them: the system takes them back when it needs room, so
    they bound nothing, while a USS or RSS would count all of the file.
    """
    process = psutil.Process()
    held = 0
    for each in (process, *process.children(recursive=True)):
        try:
            told = Path(f"/proc/{each.pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:  # it has ended
            continue
        held += sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return held / 1e3


def measured(batches: Batches) -> tuple[float, float]:
    """(images a second over an epoch, the most MB beyond what was held before)."""
    before, most, count = private_memory(), 0.0, 0
    began, looking = time.perf_counter(), 0.0
    for number, (x, _) in enumerate(batches()):
        count += len(x)
        if number % 50 == 25:  # memory is looked at outside of the time that counts
            start = time.perf_counter()
            most = max(most, private_memory() - before)
            looking += time.perf_counter() - start
    return count / (time.perf_counter() - began - looking), most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2, help="of torchvision's DataLoader")
    parser.add_argument("--epochs", type=int, default=2, help="over each; the faster one counts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "images"
        os.environ["SWEETSPOT_CACHE"] = str(Path(name) / "cache")
        write_images(folder, arguments.images)
        began = time.perf_counter()
        load(str(folder), Path("."))
        print(f"cache made in {time.perf_counter() - began:.1f} s for {arguments.images:,} images of {SIDE} px")
        found = {}
        for who, batches in (("ours", ours(folder)), ("theirs", theirs(folder, arguments.workers))):
            runs = [measured(batches) for _ in range(arguments.epochs)]
            found[who] = max(rate for rate, _ in runs)
            print(
                f"{who:<7}{found[who]:>10,.0f} images/s, {max(memory for _, memory in runs):,.0f} MB more", flush=True
            )
        told = f"ours {found['ours']:,.0f} images/s, theirs {found['theirs']:,.0f}"
        print(f"ratio folder {found['ours'] / found['theirs']:.2f} ({told})")


if __name__ == "__main__":
    main()
