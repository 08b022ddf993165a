"""The prototype attacker: it knows only the class, and answers with that class's median input."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.threat_model import ATTACKS, AttackerData, LabelOnly, Reconstruction, Victim, checked, device_of
from sweetspot.errors import UserError

PER_CLASS = 1000  # inputs a class's median is taken over


@ATTACKS("prototype")
class Prototype(LabelOnly):
    """The median input of every class: the plainest of the attackers who know the label alone."""

    version = 2  # it is told the true class, and no longer asks the server for it

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.medians: Tensor | None = None  # (classes, …)

    @property
    def settings(self) -> dict[str, Any]:
        return {}

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            raise UserError(
                "the prototype attack needs inputs of the attacker's own, and this threat model grants none"
            )
        classes = [data.images((data.y == c).nonzero().squeeze(1)[:PER_CLASS]) for c in range(victim.classes)]
        medians = [each.median(dim=0).values if len(each) else torch.zeros(victim.shape) for each in classes]
        self.medians = torch.stack(medians).to(device_of(victim))  # a class that nobody has is not attacked either

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        if self.medians is None:
            raise UserError("the prototype attack must be prepared before it can reconstruct")
        began = time.perf_counter()
        z, x = checked(z), self.medians[self.classes]
        return Reconstruction(x, victim.residual(x, z), time.perf_counter() - began)
