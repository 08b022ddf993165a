"""Conditions: the same attacks behind a channel, with more answers to average, or with fewer inputs to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from sweetspot.attacks import Attack, AttackerData, Victim
from sweetspot.attacks.queries import asked_often
from sweetspot.attacks.threat_model import device_of
from sweetspot.datamodules.mapped import part_of
from sweetspot.lightning_modules.defences.releases import RELEASES, Chain, Release, channel_name, channel_release
from sweetspot.runs.attack_config import AttackConfig

UNIT_INPUTS = 2000  # training inputs from which the unit of noise is measured
KINDS = ("channels", "queries", "attacker_data")  # where the record of an attack keeps what came back under a condition


@dataclass(frozen=True)
class Condition:
    """One way in which circumstances differ from the usual ones.

    Args:
        kind: where the record of an attack keeps it.
        name: how the record calls it.
        asked: what the flag says: a channel, so many answers, so many inputs.
    """

    kind: str
    name: str
    asked: str

    @property
    def said(self) -> str:
        """It in words."""
        return f"{self.kind.replace('_', ' ')} {self.name}"

    def applies_to(self, attack: Attack, release: Any) -> bool:
        """Whether it makes a difference to an attack on a run with this release, as results.json records it."""
        if attack.is_floor:
            return False
        if self.kind == "queries":
            return is_random(release)
        return self.kind != "attacker_data" or attack.has_data

    def victim(self, victim: Victim, unit: float) -> Victim:
        """The victim under this condition."""
        if self.kind == "channels":
            return replace(victim, release=behind(victim, channel_release(self.asked, unit)))
        return asked_often(victim, int(self.asked)) if self.kind == "queries" else victim

    def data(self, data: AttackerData) -> AttackerData:
        """The attacker's data under this condition: the first of a fixed random order, so that more hold fewer."""
        if self.kind != "attacker_data":
            return data
        order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))[: int(self.asked)]
        return AttackerData(part_of(data.x, order), data.y[order])


def conditions_of(config: AttackConfig, inputs: int) -> Iterator[Condition]:
    """The conditions that a config asks for; `inputs` is how many the attacker has in all."""
    for name in dict.fromkeys(config.channels):
        if name != "fp32":
            yield Condition("channels", channel_name(name), name)
    for count in dict.fromkeys(config.queries):
        if count > 1:
            yield Condition("queries", str(count), str(count))
    for each in dict.fromkeys(config.attacker_data):
        if each != "all" and int(each) < inputs:
            yield Condition("attacker_data", each, each)


def behind(victim: Victim, channel: Release) -> Chain:
    """The victim's release with a channel behind it."""
    ours = victim.release
    return Chain(*(ours if isinstance(ours, Chain) else [ours]), channel)


def is_random(release: Any) -> bool:
    """Whether a run's release, as results.json records it, draws at random; of a user's own nobody knows: it may."""
    return any(each["name"] not in RELEASES or RELEASES[each["name"]].random for each in release or [])


@torch.no_grad()
def noise_unit(victim: Victim, data: AttackerData) -> float:
    """The root mean square of what is released without noise, over training inputs: what a channel's noise is in."""
    sample = data.sample(UNIT_INPUTS).to(device_of(victim))
    squares = [victim.represent(part).double().square().mean(dim=1) for part in sample.split(500)]
    return torch.cat(squares).mean().sqrt().item()
