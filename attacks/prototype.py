"""The prototype attacker, the floor: it learns only the class from z, and answers with that class's median input."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from attacks.threat_model import Attack, AttackerData, Reconstruction, Victim, checked, device_of
from errors import UserError

PER_CLASS = 1000  # inputs a class's median is taken over


class Prototype(Attack):
    """What leaks through the label alone: only what another attack recovers beyond this is more than the class."""

    key = "prototype"

    def __init__(self) -> None:
        self.medians: Tensor | None = None  # (classes, …)

    def __repr__(self) -> str:
        return "Prototype()"

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            raise UserError(
                "the prototype attack needs inputs of the attacker's own, and this threat model grants none"
            )
        classes = [data.images((data.y == c).nonzero().squeeze(1)[:PER_CLASS]) for c in range(victim.classes)]
        self.medians = torch.stack([members.median(dim=0).values for members in classes]).to(device_of(victim))

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        if self.medians is None:
            raise UserError("the prototype attack must be prepared before it can reconstruct")
        began = time.perf_counter()
        with torch.no_grad():
            guessed = victim.head(checked(z)).argmax(dim=1)  # (B,)
        x = self.medians[guessed]
        return Reconstruction(x, victim.residual(x, z), time.perf_counter() - began, {"class": guessed.tolist()})
