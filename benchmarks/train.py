"""How fast training is: our pipeline against the obvious one and against the limit, and what MixCon costs.

    python benchmarks/train.py                  # full MNIST where it is under the data root, else the embedded digits
    python benchmarks/train.py --data-root DIR --images 20000 --repeats 5

All train the same LeNet5 at batch 100 on the same images, in turns, in one process. The machine's speed may drift, so
ratios are taken within a round, and their median counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # `train` must be train.py, not this file

import lightning
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import ToTensor

from sweetspot.datamodules import Arrays, TensorDataModule, load
from sweetspot.datamodules.tensors import scaled
from sweetspot.lightning_modules.networks import SplitNetwork, build_network
from sweetspot.runs.command_line import quieten
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import build_module, build_trainer

BATCH = 100


class PlainLeNet(lightning.LightningModule):
    """LeNet5 in the Lightning loop that a tutorial writes."""

    def __init__(self, network: SplitNetwork) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Images(Dataset[tuple[Tensor, int]]):
    """What torchvision's MNIST does with an item: a PIL image, then ToTensor."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.transform = x, y, ToTensor()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.x[index, 0].numpy(), mode=None)
        return self.transform(image), int(self.y[index])


def new_network() -> SplitNetwork:
    torch.manual_seed(0)
    return build_network("lenet", (1, 28, 28), 10)


def obvious(arrays: Arrays) -> float:
    """Seconds of one epoch: torchvision dataset, ToTensor, DataLoader, a plain Lightning loop."""
    loader = DataLoader(Images(arrays.x_train, arrays.y_train), batch_size=BATCH, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=1,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    began = time.perf_counter()
    trainer.fit(PlainLeNet(new_network()), loader)
    return time.perf_counter() - began


def ours(arrays: Arrays, lam: float, folder: Path) -> float:
    """Seconds of one epoch of `train.py`'s own module, data and Trainer, its logs and checkpoint included."""
    config = TrainConfig(lam=lam, epochs=1, batch_size=BATCH, validation_fraction=0)
    datamodule = TensorDataModule(arrays, BATCH, validation_fraction=0)
    module = build_module(config, datamodule)
    trainer = build_trainer(config, Run(folder))
    began = time.perf_counter()
    trainer.fit(module, datamodule=datamodule)
    return time.perf_counter() - began


def limit(arrays: Arrays) -> float:
    """Seconds of one epoch of a bare PyTorch loop over tensors that lie in memory, ready as floats.

    It is the loop one writes first: PyTorch's default memory layout and optimiser, no input standardisation. Ours runs
    channels last with a fused optimiser, so a ratio near 1 says that these pay for Lightning, not that it is free.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = scaled(arrays.x_train).to(device), arrays.y_train.to(device)
    network = new_network().to(device)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    began = time.perf_counter()
    for indices in torch.randperm(len(y), device=device).split(BATCH):
        loss = F.cross_entropy(network(x[indices]), y[indices])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path(os.environ.get("SWEETSPOT_DATA") or "data"))
    parser.add_argument("--images", type=int, default=60_000, help="how many training images at the most")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    quieten()
    warnings.filterwarnings("ignore")
    arrays = load(None, chosen.data_root)
    arrays.x_train, arrays.y_train = arrays.x_train[: chosen.images], arrays.y_train[: chosen.images]
    count = len(arrays.y_train)
    kept = tempfile.TemporaryDirectory(prefix="sweetspot-benchmark-")
    folder = Path(kept.name)
    contestants: dict[str, Callable[[], float]] = {
        "obvious": lambda: obvious(arrays),
        "limit": lambda: limit(arrays),
        "ours": lambda: ours(arrays, 0.0, folder / "vanilla"),
        "mixcon": lambda: ours(arrays, 1.0, folder / "mixcon"),
    }
    print(f"{arrays.name}, {count:,} images, batch {BATCH}, {torch.get_num_threads()} threads, {chosen.repeats} rounds")
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(chosen.repeats):
        for name, contestant in contestants.items():
            rates[name].append(count / contestant())
            print(f"  round {repeat + 1}, {name}: {rates[name][-1]:,.0f} images/s", flush=True)
    for name, left, right in (
        ("pipeline", "ours", "obvious"),
        ("limit", "ours", "limit"),
        ("mixcon", "mixcon", "ours"),
    ):
        pairs = list(zip(rates[left], rates[right], strict=True))
        ratio = statistics.median(mine / other for mine, other in pairs)  # within a round the machine is the same
        mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
        if name == "mixcon":
            print(f"ratio mixcon {ratio:.2f} (ours {1000 * BATCH / mine:.2f} ms, theirs {1000 * BATCH / other:.2f} ms)")
        else:
            print(f"ratio {name} {ratio:.2f} (ours {mine:,.0f}/s, theirs {other:,.0f}/s)")


if __name__ == "__main__":
    main()
