"""Small networks of every kind with every defence, and training steps of them on any device."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from sweetspot.datamodules.tensors import Arrays, TensorDataModule
from sweetspot.lightning_modules.causal_lm import gpt2_tiny
from sweetspot.lightning_modules.split_module import SplitModule
from tests.own_network import OWN_NETWORK

NOISE = [{"name": "gaussian", "unit": "raw"}]
# every penalty, with the bottleneck and the release that it needs or is usually given
DEFENCES: dict[str, dict[str, Any]] = {
    "none": {},
    "mixcon": {"defence": "mixcon"},
    "mixcon partners": {"defence": "mixcon", "defence_options": {"partners": 2}},
    "unicon": {"defence": "unicon"},
    "unicon partners": {"defence": "unicon", "defence_options": {"partners": 2}},
    "nopeek": {"defence": "nopeek"},
    "adversary": {"defence": "adversary", "defence_options": {"against": "l1"}},
    "adversary ssim": {"defence": "adversary"},
    "compress": {"defence": "compress", "bottleneck": "8-4", "release": NOISE},
    "vib": {"defence": "vib", "bottleneck": "4", "release": NOISE},
    "cem": {"defence": "cem", "defence_options": {"clusters": 2}, "release": NOISE},
}
WITH_PARTNERS = ("mixcon partners", "unicon partners")  # the way of every pair of classes is another
FOR_TEXT = ("none", *WITH_PARTNERS, "compress", "vib")
FOR_VECTORS = tuple(name for name in DEFENCES if name != "adversary ssim")
RELEASES: dict[str, list[dict[str, Any]]] = {
    name: [{"name": name}]
    for name in ("gaussian", "laplace", "dropout", "topk", "quantise", "clip", "fp16", "bf16", "int8")
}
RELEASES["chain"] = [{"name": "clip"}, {"name": "gaussian"}, {"name": "topk", "keep": 0.5}]
CLASSES, BATCH = 2, 8
VOCABULARY, LENGTH = 23, 5

FOREIGN = (
    OWN_NETWORK
    + """
class Untraceable(Net):
    def forward(self, x):
        x = self.features(x)
        x = F.relu(x + self.skip(x))
        return self.fc(x.flatten(1)) if x.shape[0] > 0 else x
"""
)
SHAPES = {"mlp": (10,), "vgg16": (3, 32, 32), "vgg16-bn": (3, 32, 32), "gpt2-tiny": (LENGTH,)}
NETWORKS = ("lenet", "vgg16", "vgg16-bn", "mlp", "foreign", "untraceable", "gpt2-tiny")


def built(network: str, folder: Path, augment: list[str] | None = None, lam: float = 1.0, **parts: Any) -> SplitModule:
    """A network with a defence, on the CPU.

    Args:
        network: of `NETWORKS`.
        folder: where the file of a foreign network is put.
        augment: as `SplitModule` takes it.
        lam: the penalty's weight.
        parts: of the defence.
    """
    shape = SHAPES.get(network, (1, 28, 28))
    pixels = {"mean": [0.5] * shape[0], "std": [0.25] * shape[0]} if len(shape) == 3 else None
    options: dict[str, Any] = {"classes": CLASSES, "pixels": pixels, "cut": 2}
    if network == "gpt2-tiny":
        config = gpt2_tiny(VOCABULARY, layers=2, width=8, heads=2, context=16).config.to_dict()
        options = {"classes": VOCABULARY, "cut": 1, "language": {"config": config}}
    elif network in ("foreign", "untraceable"):
        file = folder / "foreign.py"
        file.write_text(FOREIGN)
        options["cut"] = "features"
        network = f"{file}:{'Net' if network == 'foreign' else 'Untraceable'}"
    lam = lam if "defence" in parts else 0.0
    return SplitModule(network, list(shape), lam=lam, augment=augment, **options, **parts)


def data_for(module: SplitModule, count: int = 2 * BATCH) -> TensorDataModule:
    """Random examples of what a network takes, on the CPU."""
    generator, shape = torch.Generator().manual_seed(0), tuple(module.hparams["shape"])
    if module.hparams["language"] is not None:
        x = torch.randint(VOCABULARY, (count, *shape), generator=generator)
        arrays = Arrays("random", "here", x, x.roll(-1, dims=1), x, x.roll(-1, dims=1), VOCABULARY)
    else:
        x, y = torch.rand(count, *shape, generator=generator), torch.arange(count) % CLASSES
        arrays = Arrays("random", "here", x, y, x, y, CLASSES)
    return TensorDataModule(arrays, BATCH, validation_fraction=0.0)


def defences_for(network: str) -> tuple[str, ...]:
    """The defences that make sense for a network."""
    return {"gpt2-tiny": FOR_TEXT, "mlp": FOR_VECTORS}.get(network, tuple(DEFENCES))


EVERY_PAIR = [(network, defence) for network in NETWORKS for defence in defences_for(network)]


class Steps:
    """Training steps of a module as Lightning makes them, without Lightning's own work around them.

    Args:
        module: is trained.
        device: where.
    """

    def __init__(self, module: SplitModule, device: torch.device | str) -> None:
        self.data = data_for(module)
        self.module = module.train().to(device)
        module._trainer = SimpleNamespace(  # type: ignore[assignment]
            num_training_batches=2, current_epoch=0, global_rank=0, precision="32-true", datamodule=self.data
        )
        self.optimiser = module.configure_optimizers()
        x, y = self.data.train
        self.batch = x[:BATCH].to(device), y[:BATCH].to(device)
        module.on_train_epoch_start()

    def take(self, number: int, precision: torch.dtype | None = None) -> Tensor:
        """The loss of one step, in mixed precision if one is given."""
        self.module.on_train_batch_start(self.batch, number)
        self.optimiser.zero_grad()
        with torch.autocast(self.batch[0].device.type, precision or torch.bfloat16, enabled=precision is not None):
            loss = self.module.training_step(self.batch, number)
        loss.backward()
        self.optimiser.step()
        return loss
