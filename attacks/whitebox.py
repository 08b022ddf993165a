"""White-box inversion (Eq. 3): x* = argmin_s L(h(s), z) + α·R(s) by gradient descent on s, all inputs in one tensor.

`paper` is the recipe as published. `adaptive` is what a determined attacker does: features scaled by their own spread
(MixCon shrinks some directions, it does not remove them), Adam, box projection, several starts and priors at once,
and for every input the candidate that explains z best, the smoothest where several do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attacks.threat_model import Attack, AttackerData, Reconstruction, Victim, checked, device_of
from errors import UserError

CHUNK = 2000  # inputs in one forward pass
TIE = 1.2  # residuals this close say nothing about which candidate is right
STATISTICS = 5000  # inputs of the attacker's own that the mean input and the spread of features are taken from


@dataclass(frozen=True)
class Candidate:
    """One way to descend.

    Args:
        optimiser: `sgd` or `adam` (with a cosine-decaying step).
        lr: the step size.
        loss: `mse` and `l1` as the paper writes them; `spread` divides every feature by its standard deviation.
        start: `zeros`, `mean` (of the attacker's own inputs) or `random`.
        tv: weight of the total variation.
        weight_decay: pull towards zero.
        box: whether every step is projected into the input's range.
    """

    optimiser: str = "adam"
    lr: float = 0.1
    loss: str = "spread"
    start: str = "mean"
    tv: float = 0.0
    weight_decay: float = 0.0
    box: bool = True


# the spec's settings: TV 1e-5 for grey images, 0.01 for coloured ones; for vectors ℓ1 and no prior
PAPER_STEPS = 500
PAPER_VECTORS = Candidate("sgd", lr=0.01, loss="l1", start="zeros", weight_decay=1e-4, box=False)
PAPER_GREY = Candidate("sgd", lr=10.0, loss="mse", start="zeros", tv=1e-5, weight_decay=1e-4, box=False)
PAPER_COLOUR = Candidate("sgd", lr=10.0, loss="mse", start="zeros", tv=1e-2, weight_decay=1e-4, box=False)

BUDGETS: dict[str, tuple[int, list[Candidate]]] = {
    "fast": (300, [Candidate(tv=1e-4), Candidate(tv=1e-3)]),
    "normal": (
        500,
        [
            *(Candidate(tv=tv) for tv in (3e-5, 1e-4, 3e-4, 1e-3)),
            Candidate(tv=1e-4, start="zeros"),
            Candidate(tv=1e-4, loss="mse"),
        ],
    ),
    "thorough": (
        2000,
        [
            *(
                Candidate(tv=tv, start=start)
                for tv in (0.0, 1e-5, 3e-5, 1e-4, 1e-3)
                for start in ("mean", "zeros", "random")
            ),
            *(Candidate(tv=tv, loss="mse") for tv in (1e-5, 1e-4, 1e-3)),
            *(Candidate(tv=1e-4, lr=lr) for lr in (0.02, 0.3)),
        ],
    ),
}


def total_variation(s: Tensor) -> Tensor:
    """Σ_ij ((s_{i+1,j} − s_ij)² + (s_{i,j+1} − s_ij)²)^½ of each image, (B, C, H, W) → (B,)."""
    down = s[..., 1:, :-1] - s[..., :-1, :-1]
    right = s[..., :-1, 1:] - s[..., :-1, :-1]
    return (down.square() + right.square() + 1e-12).sqrt().flatten(1).sum(dim=1)  # the root's slope at 0 stays finite


class WhiteBox(Attack):
    """Inversion by optimisation. It needs the weights and z; with data of its own it also knows a mean input.

    Args:
        recipe: `paper` or `adaptive`.
        budget: `fast`, `normal` or `thorough`; how much the adaptive attacker spends.
        seed: of the random starts.
    """

    def __init__(self, recipe: str = "adaptive", budget: str = "normal", seed: int = 0) -> None:
        if recipe not in ("paper", "adaptive"):
            raise UserError(f"recipe must be paper or adaptive; got {recipe}")
        if budget not in BUDGETS:
            raise UserError(f"budget must be one of {', '.join(BUDGETS)}; got {budget}")
        self.key, self.recipe, self.budget, self.seed = f"whitebox/{recipe}", recipe, budget, seed
        self.mean: Tensor | None = None  # of the attacker's inputs, (…)
        self.spread: Tensor | None = None  # of the victim's features on them, (d,)

    def __repr__(self) -> str:
        return f"WhiteBox(recipe={self.recipe}, budget={self.budget}, seed={self.seed})"

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            return
        own = data.images(slice(0, STATISTICS)).to(device_of(victim))
        self.mean = own.mean(dim=0)
        with torch.inference_mode():
            self.spread = torch.cat([victim.represent(part) for part in own.split(CHUNK)]).std(dim=0)

    def candidates(self, victim: Victim) -> tuple[int, list[Candidate]]:
        """How many steps, and which descents."""
        if self.recipe == "adaptive":
            return BUDGETS[self.budget]
        if len(victim.shape) == 1:
            return PAPER_STEPS, [PAPER_VECTORS]
        return PAPER_STEPS, [PAPER_GREY if victim.shape[0] == 1 else PAPER_COLOUR]

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        began = time.perf_counter()
        z = checked(z).flatten(1)  # (B, d)
        spread = self.spread if self.spread is not None else z.std(dim=0) if len(z) > 1 else torch.ones_like(z[0])
        steps, candidates = self.candidates(victim)
        if len(victim.shape) == 1:
            candidates = list(dict.fromkeys(without_images(candidate) for candidate in candidates))
        together = max(1, CHUNK // len(z))
        found = []
        for first in range(0, len(candidates), together):
            group = candidates[first : first + together]
            found.append(
                descend(victim, z, group, steps, self.starts(victim, z, group), feature_weight(spread), self.recipe)
            )
        x = torch.cat([part for part, _ in found])  # (K, B, …)
        residual = torch.cat([part for _, part in found])  # (K, B)
        chosen = best_explanation(x, residual)
        each = torch.arange(len(z), device=z.device)
        trace = {"candidates": [repr(c) for c in candidates], "chosen": chosen.tolist()}
        return Reconstruction(x[chosen, each], residual[chosen, each], time.perf_counter() - began, trace)

    def starts(self, victim: Victim, z: Tensor, group: Sequence[Candidate]) -> Tensor:
        """Where each candidate begins, (K, B, …)."""
        generator = torch.Generator().manual_seed(self.seed)
        shape = (len(z), *victim.shape)
        zeros = torch.zeros(shape, device=z.device)
        mean = zeros if self.mean is None else self.mean.to(z.device).expand(shape)
        noise = torch.rand if victim.bounds is not None else torch.randn
        random = noise(shape, generator=generator).to(z.device)
        return torch.stack([{"zeros": zeros, "mean": mean, "random": random}[candidate.start] for candidate in group])


def best_explanation(x: Tensor, residual: Tensor) -> Tensor:
    """For every input the candidate that explains z best, (K, B, …) × (K, B) → (B,).

    Many images explain z equally well: among those within `TIE` of the smallest residual the smoothest is taken, as an
    attacker who knows no more than what images look like would do.
    """
    if x.ndim != 5:
        return residual.argmin(dim=0)
    variation = torch.stack([total_variation(candidate) for candidate in x])  # (K, B)
    tied = residual <= TIE * residual.amin(dim=0, keepdim=True)
    return torch.where(tied, variation, torch.inf).argmin(dim=0)


def without_images(candidate: Candidate) -> Candidate:
    """The candidate for vectors: there is no variation to count and no box."""
    return replace(candidate, tv=0.0, box=False)


def feature_weight(spread: Tensor) -> Tensor:
    """1/σ² of every feature, (d,); a feature that hardly moves is not allowed to drown the others."""
    return 1 / (spread + 0.05 * spread.mean() + 1e-12).square()


def descend(
    victim: Victim, z: Tensor, group: Sequence[Candidate], steps: int, starts: Tensor, weight: Tensor, recipe: str
) -> tuple[Tensor, Tensor]:
    """Run all candidates of the group at once; the inputs (K, B, …) and their residuals (K, B).

    Every input has its own loss, and the losses are summed: nothing of one input reaches another. A step that is not
    finite goes back to the input's best point with a smaller step; Ctrl-C ends with the best so far.
    """
    k, b = starts.shape[:2]
    per_input = (k * b,) + (1,) * len(victim.shape)

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, device=z.device).repeat_interleave(b)  # (K·B,)

    lr = column([c.lr for c in group]).view(per_input)
    decay = column([c.weight_decay for c in group]).view(per_input)
    adam = column([float(c.optimiser == "adam") for c in group]).view(per_input).bool()
    box = column([float(c.box and victim.bounds is not None) for c in group]).view(per_input).bool()
    tv = column([c.tv for c in group])
    weights = torch.stack([weight if c.loss == "spread" else torch.ones_like(weight) for c in group])[
        :, None
    ]  # (K, 1, d)
    l1 = column([float(c.loss == "l1") for c in group]).bool()
    low, high = victim.bounds or (-math.inf, math.inf)
    target = z.repeat(k, 1)  # (K·B, d)
    s = starts.flatten(0, 1).clone()
    first, second = torch.zeros_like(s), torch.zeros_like(s)
    best, best_residual = s.clone(), torch.full((k * b,), math.inf, device=z.device)
    try:
        for step in range(1, steps + 1):
            s.requires_grad_(True)
            difference = victim.represent(s) - target  # (K·B, d)
            squared = (difference.view(k, b, -1).square() * weights).mean(dim=2).flatten()
            loss = torch.where(l1, difference.abs().sum(dim=1), squared)
            if len(victim.shape) == 3:
                loss = loss + tv * total_variation(s)
            (gradient,) = torch.autograd.grad(loss.sum(), s)
            s = s.detach()
            with torch.no_grad():
                residual = difference.detach().norm(dim=1)
                better = residual < best_residual  # never true for NaN
                best = torch.where(better.view(per_input), s, best)
                best_residual = torch.where(better, residual, best_residual)
                finite = gradient.flatten(1).isfinite().all(dim=1).view(per_input)
                gradient = torch.where(finite, gradient, 0.0)
                lr = torch.where(finite, lr, lr / 10)
                first.mul_(0.9).add_(gradient, alpha=0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
                move = cosine * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-12)
                s = torch.where(finite, s, best) - lr * torch.where(adam, move, gradient + decay * s)
                s = torch.where(box, s.clamp(low, high), s)
    except KeyboardInterrupt:
        pass
    last = (victim.represent(s) - target).detach().norm(dim=1)
    # as published, the last iterate is the answer, wherever it ended
    usable = last.isfinite() if recipe == "paper" else last < best_residual
    x = torch.where(usable.view(per_input), s, best)
    residual = torch.where(usable, last, best_residual) / target.norm(dim=1).clamp_min(1e-12)
    return x.view(k, b, *victim.shape), residual.view(k, b)
