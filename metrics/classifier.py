"""An independent classifier: does a reconstruction still look like its class to a network that is not the victim?"""

from __future__ import annotations

import hashlib
from pathlib import Path

import filelock
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.datamodules.tensors import TensorDataModule, scaled
from sweetspot.errors import UserError
from sweetspot.files import save_tensors
from sweetspot.lightning_modules.networks import build_network
from sweetspot.progress import steps_shown
from sweetspot.runs.checkpoints import restored

STEPS, BATCH, PEAK_LR = 1000, 128, 3e-3
SEED = 20_101_146  # no run's own seed: the classifier shares neither weights nor batches with a victim


def independent_classifier(datamodule: TensorDataModule, cache: Path, device: torch.device) -> nn.Module | None:
    """A LeNet5 (an MLP for vectors) trained on the same training split, once for all runs on these data.

    None where the inputs fit neither.
    """
    name = "lenet" if len(datamodule.shape) == 3 else "mlp"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        try:
            network = build_network(name, datamodule.shape, datamodule.classes, 1, "default", datamodule.pixels())
        except UserError:
            return None
    network = network.to(device)
    file = cache / f"classifier-{fingerprint(*datamodule.train)}.pt"
    if not restored(network, file):
        cache.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(file.with_suffix(".lock")):  # runs of a grid need it at the same time
            if not restored(network, file):
                fit(network, *datamodule.train, device)
                save_tensors(file, network.state_dict())
    return network.eval().requires_grad_(False)


def fit(network: nn.Module, x: Tensor, y: Tensor, device: torch.device) -> None:
    """Adam with one cycle of the step size."""
    generator = torch.Generator().manual_seed(SEED)
    optimiser = torch.optim.Adam(network.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_LR, total_steps=STEPS)
    with steps_shown("independent classifier", STEPS) as done:
        for step in range(1, STEPS + 1):
            chosen = torch.randint(len(y), (BATCH,), generator=generator)
            loss = F.cross_entropy(network(scaled(x[chosen].to(device))), y[chosen].to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            done(step)


def fingerprint(x: Tensor, y: Tensor) -> str:
    """What tells one training split from another."""
    made_of = hashlib.sha256(x.contiguous().numpy().tobytes())
    made_of.update(y.contiguous().numpy().tobytes())
    return made_of.hexdigest()[:12]
