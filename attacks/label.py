"""The label attacker: the decoder that the label alone trains. What others recover beyond it is more than the class."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import filelock
import torch
from torch import Tensor

from sweetspot.attacks.decoder.attack import STEPS
from sweetspot.attacks.decoder.networks import InverseNetwork
from sweetspot.attacks.decoder.training import PEAK_LR, inverse_loss, random_batches
from sweetspot.attacks.threat_model import ATTACKS, AttackerData, LabelOnly, Reconstruction, Victim, checked, device_of
from sweetspot.datamodules.mapped import hash_into
from sweetspot.errors import UserError
from sweetspot.files import save_tensors
from sweetspot.progress import steps_shown
from sweetspot.runs.checkpoints import restored

FORMAT = 1  # raised when the decoder is built or trained in another way


@ATTACKS("label")
class Label(LabelOnly):
    """A decoder of the same size as `decoder/adaptive`, trained in the same way, that sees the class and nothing else.

    It depends on the attacker's data alone, not on the victim, so one file serves every run on these data.
    """

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.answers: Tensor | None = None  # (classes, …)

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            raise UserError("the label attack needs inputs of the attacker's own, and this threat model grants none")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = InverseNetwork((victim.classes,), victim.shape).to(device_of(victim))
        if self.cache is None:
            self.train(network, victim, data)
        else:
            self.cache.mkdir(parents=True, exist_ok=True)
            file = self.file(victim, data)
            with filelock.FileLock(file.with_suffix(".lock")):  # runs of a grid need it at the same time
                if not restored(network, file):
                    self.train(network, victim, data)
                    save_tensors(file, network.state_dict())
        with torch.no_grad():
            self.answers = network.eval()(labels_of(victim))

    def train(self, network: InverseNetwork, victim: Victim, data: AttackerData) -> None:
        """The decoder's own training, on classes.

        Every batch holds each class at most once as an input of the network: its answers are as many as there are
        classes, however many images they are compared with.
        """
        batches = random_batches(len(data.y), STEPS[self.budget], torch.Generator().manual_seed(self.seed))
        optimiser = torch.optim.Adam(network.parameters(), fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_LR, total_steps=len(batches) + 1)
        labels = labels_of(victim)
        with steps_shown(self.key, len(batches)) as done, torch.enable_grad():
            for step, batch in enumerate(batches, 1):
                x, y = (each.to(labels.device, non_blocking=True) for each in (data.images(batch), data.y[batch]))
                loss = inverse_loss(network(labels)[y], x)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                done(step)

    def file(self, victim: Victim, data: AttackerData) -> Path:
        """Where the trained decoder is kept: the name follows from everything that made it."""
        assert self.cache is not None
        made_with = hashlib.sha256(f"{FORMAT} {self.budget} {STEPS[self.budget]} {self.seed} {victim.classes}".encode())
        for tensor in (data.x, data.y):
            hash_into(made_with, tensor)
        return self.cache / f"label-{self.budget}-{self.seed}-{made_with.hexdigest()[:12]}.pt"

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        if self.answers is None:
            raise UserError("the label attack must be prepared before it can reconstruct")
        began = time.perf_counter()
        z, x = checked(z), self.answers[self.classes]
        return Reconstruction(x, victim.residual(x, z), time.perf_counter() - began)


def labels_of(victim: Victim) -> Tensor:
    """Every class as a network takes it, (classes, classes)."""
    return torch.eye(victim.classes, device=device_of(victim))
