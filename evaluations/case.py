"""A victim under attack: what left the client, what the attacker has, and who may compare both sides."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks import Attack, AttackerData, LabelOnly, Reconstruction, Victim
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.conditions import Condition, noise_unit
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.metrics.scoring import Scorer
from sweetspot.metrics.summary import scored
from sweetspot.runs.environment import environment

CLIENT = 0x9E3779B9  # added to the seed of what the client draws: an attack never draws the client's own noise
DRAW = 7919  # between the seeds of two draws


@dataclass
class Attacked:
    """What one attack gave.

    Args:
        x: the recovered inputs (B, …), of the first draw.
        record: what results keep of it.
        stopped: whether it was stopped on its way.
    """

    x: Tensor
    record: dict[str, Any]
    stopped: bool


@dataclass
class Case:
    """A victim, the inputs that are attacked, and the attacker's own.

    Args:
        victim: what the attacker sees, on its device.
        own: the attacker's own inputs; None: it has none.
        x: the attacked inputs (B, …): the client and the scorer see them, no attack does.
        classes: their classes (B,).
        inputs: their indices in the test set.
        seed: of the attacks.
        scorer: makes who compares both sides; it is asked once, where something is to be scored.
    """

    victim: Victim
    own: AttackerData | None
    x: Tensor
    classes: Tensor
    inputs: list[int]
    seed: int
    scorer: Callable[[], Scorer]

    @property
    def device(self) -> torch.device:
        """Where all of it happens."""
        return self.x.device

    @cached_property
    def unit(self) -> float:
        """What a channel's noise is measured in."""
        return noise_unit(self.victim, self.own or AttackerData(self.x, self.classes))

    def released(self, victim: Victim, draw: int = 0) -> Tensor:
        """What leaves the client for the attacked inputs, by a draw of its own."""
        with torch.no_grad(), draws_from((CLIENT + self.seed + draw * DRAW) % 2**32, self.device):
            return victim.released(scaled(self.x))

    def attacked(self, attack: Attack, draws: int = 1, condition: Condition | None = None) -> Attacked:
        """What an attack recovers, scored; of a random release as the mean over several draws.

        Args:
            attack: before it was prepared.
            draws: how often every input is released and attacked, where two draws differ.
            condition: under which circumstances; None: the usual ones.
        """
        began = time.perf_counter()
        victim = self.victim if condition is None else condition.victim(self.victim, self.unit)
        own = self.own if condition is None or self.own is None else condition.data(self.own)
        made = draws if is_random(victim) and not attack.is_floor else 1
        z = torch.cat([self.released(victim, draw) for draw in range(made)])  # from here on only the scorer knows x
        with draws_from(self.seed, self.device):
            attack.prepare(victim, own)
            if isinstance(attack, LabelOnly):
                attack.tell(self.classes)
            reconstruction = attack.reconstruct(victim, z)
        made_with = environment(self.device, self.seed, time.perf_counter() - began)
        stopped = bool(reconstruction.trace.get("steps", 0) < reconstruction.trace.get("of", 0))
        parts = reconstruction.x.split(len(self.inputs))
        scores = [self.scorer().score(part) for part in parts]
        record = {**over_draws(scores), **recorded(attack, reconstruction, made_with)}
        about = {"samples": len(self.inputs), "inputs": self.inputs, "settings": attack.settings, "stopped": stopped}
        return Attacked(parts[0], {**record, **about, "draws_asked": draws}, stopped)


def is_random(victim: Victim) -> bool:
    """Whether two answers for one input differ; of a release that is any function nobody knows, so they may."""
    return bool(getattr(victim.release, "is_random", getattr(victim.release, "random", True)))


def over_draws(scores: list[dict[str, Tensor]]) -> dict[str, Any]:
    """Scores as results keep them: each input's mean over draws, and how much the mean over inputs differs by draw."""
    mean = {name: torch.stack([each[name] for each in scores]).mean(dim=0) for name in scores[0]}
    if len(scores) == 1:
        return scored(mean)
    means = {name: torch.stack([each[name].double().mean() for each in scores]) for name in mean}
    spread = {name: {"mean": each.mean().item(), "std": each.std().item()} for name, each in means.items()}
    return {**scored(mean), "draws": {"count": len(scores), **spread}}


def recorded(attack: Attack, reconstruction: Reconstruction, made_with: dict[str, Any]) -> dict[str, Any]:
    """What results keep of an attack, apart from its scores and what it was tried on."""
    return {
        "residual": reconstruction.residual.mean().item(),
        "seconds": made_with["seconds"],
        "format": attack.version,
        "trace": reconstruction.trace,
        "environment": made_with,
    }
