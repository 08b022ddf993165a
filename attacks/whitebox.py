"""White-box inversion (Eq. 3): x* = argmin_s L(h(s), z) + α·R(s) by gradient descent on s, all inputs in one tensor.

`paper` is the recipe as published. `adaptive` is what a determined attacker does: a prior that is strong first and
weak in the end, gradients through shut ReLUs, features scaled by their own spread, several step sizes and starts at
once, and for every input the candidate that explains z best, the smoothest where several do. `no-data` is the same
attacker without a single input of its own: no mean input to begin at, no spread of features.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.descent import Candidate, Descent, total_variation
from sweetspot.attacks.leaky import Leak
from sweetspot.attacks.threat_model import (
    ATTACKS,
    Attack,
    AttackerData,
    Reconstruction,
    Victim,
    checked,
    device_of,
    inputs_at_once,
    size_of,
)
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.releases import Chain, Release
from sweetspot.lightning_modules.networks.split import Standardise

CHUNK = 800  # inputs in one forward pass at the most, candidates counted; large images are fewer
TIE = 1.2  # residuals this close say nothing about which candidate is right,
EXPLAINED = 1e-3  # and for vectors none this small does: z has fewer entries than they
STATISTICS = 5000  # inputs of the attacker's own that the mean input and the spread of features are taken from

# the spec's settings: TV 1e-5 for grey images, 0.01 for coloured ones; for vectors ℓ1 and no prior
PAPER_STEPS = 500
PAPER_VECTORS = Candidate("sgd", 0.01, "l1", "zeros", tv=0.0, tv_end=None, leak=0.0, weight_decay=1e-4, box=False)
PAPER_GREY = Candidate("sgd", 10.0, "mse", "zeros", tv=1e-5, tv_end=None, leak=0.0, weight_decay=1e-4, box=False)
PAPER_COLOUR = replace(PAPER_GREY, tv=1e-2)

STEPS = {"fast": 300, "normal": 500, "thorough": 1500}  # of each candidate, by budget

# What attackers who adapt try; `fast` takes the first two, `normal` the first eight, `thorough` all. A squared error
# relative to z's own size asks for a weaker prior than one relative to the features' spread.
BLIND = Candidate(loss="relative", start="grey", tv=1e-4, tv_end=1e-5)
NO_DATA = [
    replace(BLIND, lr=1.0),
    replace(BLIND, tv_end=1e-6),
    replace(BLIND, tv_end=3e-5),
    replace(BLIND, tv=1e-3),
    BLIND,
    replace(BLIND, lr=1.0, tv_end=1e-6),
    replace(BLIND, lr=1.0, tv=1e-3),
    replace(BLIND, start="random"),
    replace(BLIND, tv=3e-4),
    replace(BLIND, tv=3e-5, tv_end=1e-6),
    replace(BLIND, tv_end=1e-7),
    replace(BLIND, leak=0.6),
    replace(BLIND, leak=1.0),
    replace(BLIND, start="zeros"),
    replace(BLIND, start="random", tv_end=1e-6),
    replace(BLIND, start="random", tv=1e-3),
]
MEAN = replace(BLIND, start="mean")
ADAPTIVE = [
    replace(MEAN, lr=1.0),
    Candidate(lr=1.0),
    replace(MEAN, tv_end=1e-6),
    replace(MEAN, tv_end=3e-5),
    MEAN,
    Candidate(leak=0.0),
    Candidate(tv_end=1e-6),
    replace(MEAN, lr=1.0, tv_end=1e-6),
    Candidate(),
    Candidate(tv=1e-3),
    Candidate(loss="scaled"),
    Candidate(start="random"),
    replace(MEAN, tv=1e-3),
    replace(MEAN, tv_end=1e-7),
    replace(MEAN, leak=0.6),
    replace(BLIND, lr=1.0),
]
# Under known noise: total variation at the last step and at the first, in nats of the likelihood.
PRIORS = ((1.0, 10.0), (0.3, 3.0), (1.0, 100.0), (0.3, 30.0))
TRIED = {"fast": 2, "normal": 8, "thorough": 16}  # candidates, by budget

# A vector has no variation to count and no box, and is often larger than z: what z leaves open should stay where the
# attacker's own data are, so descents begin at their mean and take small steps.
VECTORS = [
    replace(candidate, tv=0.0, tv_end=None, leak=0.0, box=False)
    for candidate in (
        Candidate("sgd", lr=0.1),
        Candidate("sgd", lr=1.0),
        Candidate(lr=0.03),
        Candidate(lr=0.1),
        Candidate("sgd", lr=0.1, start="zeros"),
        Candidate(lr=0.1, start="random"),
    )
]
NO_DATA_VECTORS = [
    replace(candidate, loss="relative", start="zeros" if candidate.start == "mean" else candidate.start)
    for candidate in VECTORS
]


def candidates_of(recipe: str, budget: str, shape: tuple[int, ...], has_noise: bool = False) -> list[Candidate]:
    """What an attacker who adapts tries on inputs of a shape; `has_noise`: of a known size, on what was released."""
    if len(shape) == 1:
        return VECTORS if recipe == "adaptive" else NO_DATA_VECTORS
    usual = (ADAPTIVE if recipe == "adaptive" else NO_DATA)[: TRIED[budget]]
    return matched_to_noise(usual) if has_noise else usual


def matched_to_noise(usual: list[Candidate]) -> list[Candidate]:
    """The first half of the candidates, and in place of the others priors that are weighed against the noise."""
    half = len(usual) // 2
    weighed = [
        replace(way, loss="likelihood", tv=first, tv_end=last)
        for way in (usual[0], BLIND if usual[0].start == "grey" else MEAN)
        for last, first in PRIORS
    ]
    return [*usual[:half], *weighed[: len(usual) - half]]


@ATTACKS("whitebox")
class WhiteBox(Attack):
    """Inversion by optimisation. `paper` and `no-data` need the weights and z, `adaptive` also inputs of its own."""

    version = 3  # what is minimised fits the release
    recipes = usual = ("paper", "no-data", "adaptive")

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.mean: Tensor | None = None  # of the attacker's inputs, (…)
        self.spread: Tensor | None = None  # of the victim's features on them, (d,)
        self.variation: float | None = None  # of the attacker's images, on average

    @property
    def has_data(self) -> bool:
        return self.recipe == "adaptive"

    @property
    def settings(self) -> dict[str, Any]:
        drawn = {"budget": self.budget, "seed": self.seed} if self.recipe != "paper" else {}  # paper draws nothing
        return {"recipe": self.recipe, **drawn}

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if self.recipe != "adaptive":
            return
        if data is None:
            raise UserError(
                "whitebox/adaptive needs inputs of the attacker's own, and this threat model grants none; "
                "whitebox/no-data does without"
            )
        own = data.sample(STATISTICS).to(device_of(victim))
        self.mean = own.mean(dim=0)
        self.variation = total_variation(own).mean().item() if len(victim.shape) == 3 else None
        self.spread = spread_of(victim, data)

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        began = time.perf_counter()
        z = checked(z).flatten(1)  # (B, d)
        one_way = self.published if self.recipe == "paper" else self.adapted
        parts: list[tuple[Tensor, Tensor, dict[str, Any]]] = []
        for part in z.split(inputs_at_once(victim, CHUNK)):  # after Ctrl-C what is left keeps its starts
            parts.append(one_way(victim, part, stopped=any(trace["steps"] < trace["of"] for *_, trace in parts)))
        trace = parts[0][2] | {"steps": min(each["steps"] for *_, each in parts)}
        if self.recipe != "paper":
            trace["chosen"] = [choice for *_, each in parts for choice in each["chosen"]]
        x, residual = torch.cat([x for x, *_ in parts]), torch.cat([residual for _, residual, _ in parts])
        return Reconstruction(x, residual, time.perf_counter() - began, trace)

    def published(self, victim: Victim, z: Tensor, stopped: bool) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """The paper's descent, in the coordinates that its step size and start are meant for."""
        candidate = PAPER_VECTORS
        if len(victim.shape) == 3:
            candidate = PAPER_GREY if victim.shape[0] == 1 else PAPER_COLOUR
        into_input = network_coordinates(victim)
        starts = torch.zeros(1, len(z), *victim.shape, device=z.device)

        def misfit(s: Tensor, seen: Tensor) -> Tensor:  # as published: whatever was released
            difference = victim.represent(into_input(s)) - seen
            return difference.abs() if candidate.loss == "l1" else difference.square()

        power = 1.0 if candidate.loss == "l1" else 2.0
        descent = Descent(misfit, z, [candidate], starts, torch.ones_like(z[0]), power=power)
        steps = descent.run(0 if stopped else PAPER_STEPS, self.key)
        x = into_input(descent.ended(at_the_last=True)[0][0])
        trace = {"candidates": [repr(candidate)], "steps": steps, "of": PAPER_STEPS}
        return x, victim.residual(x, z), trace

    def adapted(self, victim: Victim, z: Tensor, stopped: bool) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Every candidate of the budget, as many at once as memory allows, and the best explanation of each input."""
        if self.recipe == "adaptive" and self.spread is None:
            raise UserError("whitebox/adaptive must be prepared before it can reconstruct")
        steps = STEPS[self.budget]
        candidates = candidates_of(self.recipe, self.budget, victim.shape, victim.noise > 0)
        spread = torch.ones_like(z[0]) if self.spread is None else self.spread
        leak = Leak()
        together = max(1, inputs_at_once(victim, CHUNK) // len(z))
        found: list[tuple[Tensor, Tensor]] = []
        done = 0
        for first in range(0, len(candidates), together):
            group = candidates[first : first + together]
            starts = self.starts(victim, z, group)
            descent = Descent(victim.misfit, z, group, starts, spread, victim.bounds, leak, victim.power, victim.noise)
            part = f" {first + 1}–{first + len(group)} of {len(candidates)}" if len(candidates) > together else ""
            done = descent.run(0 if stopped else steps, self.key + part)
            found.append(descent.ended(at_the_last=False))
            if done < steps:
                break
        x = torch.cat([part for part, _ in found])  # (K, B, …)
        residual = torch.cat([part for _, part in found])  # (K, B)
        typical = self.variation if victim.noise > 0 else None
        chosen = best_explanation(x, residual, self.mean, explained(victim, z), typical)
        each = torch.arange(len(z), device=z.device)
        trace = {
            "candidates": [repr(candidate) for candidate in candidates[: len(x)]],
            "chosen": chosen.tolist(),
            "steps": done,
            "of": steps,
        }
        return x[chosen, each], residual[chosen, each], trace

    def starts(self, victim: Victim, z: Tensor, group: Sequence[Candidate]) -> Tensor:
        """Where each candidate begins, (K, B, …)."""
        generator = torch.Generator().manual_seed(self.seed)
        shape = (len(z), *victim.shape)
        zeros = torch.zeros(shape, device=z.device)
        noise = torch.rand if victim.bounds is not None else torch.randn
        begin = {
            "zeros": zeros,
            "grey": zeros + sum(victim.bounds or (0.0, 0.0)) / 2,
            "random": noise(shape, generator=generator).to(z.device),
        }
        if self.mean is not None:
            begin["mean"] = self.mean.to(z.device).expand(shape)
        return torch.stack([begin[candidate.start] for candidate in group])


@torch.inference_mode()
def spread_of(victim: Victim, data: AttackerData) -> Tensor:
    """Every feature's standard deviation on the attacker's inputs (d,)."""
    own = data.sample(STATISTICS).to(device_of(victim))
    features = [victim.represent(part) for part in own.split(inputs_at_once(victim, CHUNK))]
    spread: Tensor = torch.cat(features).std(dim=0)
    return spread


def network_coordinates(victim: Victim) -> Callable[[Tensor], Tensor]:
    """From what the victim's first trained layer sees to the input.

    Our encoders standardise their images themselves. A published step size of 10 is one for a network's own input:
    in pixels of [0, 1] it would be 1/σ² too large (10 times on MNIST) and every descent would diverge.
    """
    first = next(layer for layer in victim.encoder.modules() if not [*layer.children()])
    if isinstance(first, Standardise):
        mean, std = first.mean, first.std
        return lambda s: mean + std * s
    return lambda s: s


def explained(victim: Victim, z: Tensor) -> Tensor:
    """The residual of the true input (B,): who explains z (B, d) any better than that explains the noise.

    What is coarse, or left out, is explained by many inputs exactly: any small residual is as good as 0.
    """
    noise: Tensor = (z.shape[1] * victim.noise) ** (1 / victim.power) / size_of(z, victim.power)
    release = victim.release
    is_defended = isinstance(release, Release) or (isinstance(release, Chain) and len(release) > 0)
    return noise.clamp_min(EXPLAINED) if is_defended else noise


def best_explanation(
    x: Tensor,
    residual: Tensor,
    mean: Tensor | None = None,
    explained: Tensor | float = 0.0,
    typical: float | None = None,
) -> Tensor:
    """For every input the candidate that explains z best, (K, B, …) × (K, B) → (B,).

    Many inputs explain z equally well: among those within `TIE` of the smallest residual, and those that explain all
    but the noise, the plainest is taken, as an attacker who knows no more than what inputs look like would do: the
    smoothest image, the vector nearest to the mean. Under noise images that are too smooth explain z as well: there it
    is the one of the most `typical` total variation, where the attacker knows what is typical.
    """
    bound = (TIE * residual.amin(dim=0, keepdim=True)).clamp_min(explained)
    if x.ndim == 5:
        unusual = torch.stack([total_variation(candidate) for candidate in x])  # (K, B)
        if typical is not None:
            unusual = (unusual / typical).log().abs()
    else:
        unusual = (x if mean is None else x - mean.to(x.device)).square().flatten(2).sum(dim=2)
        bound = bound.clamp_min(EXPLAINED)
    return torch.where(residual <= bound, unusual, torch.inf).argmin(dim=0)
