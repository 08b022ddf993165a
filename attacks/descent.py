"""Gradient descent on inputs (the argmin of Eq. 3): many ways to descend, on many inputs, as one tensor."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.leaky import Leak
from sweetspot.attacks.threat_model import norm_of, size_of
from sweetspot.progress import steps_shown

LEAKS_UNTIL = 0.7  # of all steps: from there on gradients are the true ones


@dataclass(frozen=True)
class Candidate:
    """One way to descend.

    Args:
        optimiser: `adam` (with a cosine-decaying step), or `sgd`.
        lr: the step size.
        loss: of the misfits (squared errors, or what the release asks for): `mse` their mean and `l1` their sum, as the
            paper writes them; `relative` divides them by the mean square of z itself, so that a step means the same on
            every victim; `scaled` by the features' mean variance on the attacker's own inputs; `spread` divides each
            feature's by its own; `likelihood` is the negative log-likelihood under known noise, in nats, and so is tv.
        start: `zeros`, `grey` (the middle of the input's range), `random`, or `mean` (of the attacker's own inputs).
        tv: weight of the total variation at the first step.
        tv_end: its weight at the last step, reached geometrically; None: it stays.
        pull: weight of the mean squared distance to the start, in units of each entry's uncertainty.
        leak: how much gradient passes a ReLU that is shut, falling to 0: a feature that must rise can be found.
        weight_decay: pull towards zero.
        box: whether every step is projected into the input's range.
    """

    optimiser: str = "adam"
    lr: float = 0.3
    loss: str = "spread"
    start: str = "mean"
    tv: float = 3e-3
    tv_end: float | None = 3e-5
    leak: float = 0.3
    weight_decay: float = 0.0
    box: bool = True
    pull: float = 0.0

    @property
    def has_posterior(self) -> bool:
        """Whether its loss weighs misfit against a prior as they should be, so that its best point has the least loss.

        For others the weights are only a way to get there, and the best point is the one that explains z best.
        """
        return self.loss == "likelihood" or self.pull > 0


def squared_error(represent: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The plainest misfit: how far the features of inputs are from what was seen, squared."""
    return lambda s, seen: (represent(s) - seen).square()


def total_variation(s: Tensor) -> Tensor:
    """Σ_ij ((s_{i+1,j} − s_ij)² + (s_{i,j+1} − s_ij)²)^½ of each image, (B, C, H, W) → (B,)."""
    down = s[..., 1:, :-1] - s[..., :-1, :-1]
    right = s[..., :-1, 1:] - s[..., :-1, :-1]
    return (
        (down.square() + right.square() + 1e-12).sqrt().flatten(1).sum(dim=1)
    )  # the root's derivative at 0 stays finite


def feature_weights(loss: str, spread: Tensor, power: float = 2.0) -> Tensor:
    """What a feature's misfit is multiplied by, (d,); a feature that hardly moves may not drown the others.

    Args:
        loss: of the candidate.
        spread: every feature's standard deviation on the attacker's own inputs (d,).
        power: of a difference, that a misfit is.
    """
    if loss == "spread":
        return 1 / (spread + 0.05 * spread.mean() + 1e-12).pow(power)
    if loss == "scaled":
        return torch.full_like(spread, 1 / (spread.pow(power).mean().item() + 1e-12))
    return torch.ones_like(spread)


def scale_of(loss: str, z: Tensor, power: float, noise: float) -> Tensor:
    """What an input's mean misfit is multiplied by, (B,).

    Under noise that is known a sum of misfits is a negative log-likelihood in nats when it is divided by 2σ² (Gaussian)
    or by b (Laplace): by the power times the mean misfit of the truth.
    """
    if loss == "likelihood":
        return torch.full_like(z[:, 0], z.shape[1] / (power * noise))
    if loss == "relative":
        return 1 / z.abs().pow(power).mean(dim=1).clamp_min(1e-12)
    return torch.ones_like(z[:, 0])


class Descent:
    """All candidates on all inputs, as one tensor of K·B inputs.

    Every input has its own loss, and the losses are summed: nothing of one input reaches another. A step that is not
    finite goes back to the input's best point with a smaller step; Ctrl-C ends with the best so far.

    Args:
        misfit: how badly inputs (N, …) explain representations (N, d), entry by entry, (N, d).
        z: the representations to be explained (B, d).
        group: the candidates.
        starts: where each begins (K, B, …).
        spread: every feature's standard deviation (d,), for candidates whose loss asks for it.
        bounds: the inputs' range, for candidates with a box.
        leak: what opens the ReLUs that are shut in `misfit`.
        power: of a difference, that a misfit is.
        noise: the mean misfit of an entry of the truth, for candidates whose loss is the likelihood.
        uncertainty: how far from its start each entry is expected (B, …): steps are measured in it, and so is `pull`.
    """

    def __init__(
        self,
        misfit: Callable[[Tensor, Tensor], Tensor],
        z: Tensor,
        group: Sequence[Candidate],
        starts: Tensor,
        spread: Tensor,
        bounds: tuple[float, float] | None = None,
        leak: Leak | None = None,
        power: float = 2.0,
        noise: float = 0.0,
        uncertainty: Tensor | None = None,
    ) -> None:
        self.misfit, self.leak, self.low_high = misfit, leak, bounds or (-math.inf, math.inf)
        self.power = power
        self.k, self.b, self.shape = len(group), len(z), tuple(starts.shape[2:])
        self.each = (self.k * self.b,) + (1,) * len(self.shape)  # one number an input, as its entries' neighbour

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, device=z.device).repeat_interleave(self.b)  # (K·B,)

        self.lr = column([c.lr for c in group]).view(self.each)
        self.unit = None if uncertainty is None else uncertainty.repeat(self.k, *[1] * len(self.shape))  # (K·B, …)
        self.pull = column([c.pull for c in group])
        self.has_posterior = column([float(c.has_posterior) for c in group]).bool()
        self.decay = column([c.weight_decay for c in group]).view(self.each)
        self.adam = column([float(c.optimiser == "adam") for c in group]).view(self.each).bool()
        self.box = column([float(c.box and bounds is not None) for c in group]).view(self.each).bool()
        self.l1 = column([float(c.loss == "l1") for c in group]).bool()
        self.tv = column([c.tv for c in group])
        ends = [c.tv if c.tv_end is None else c.tv_end for c in group]
        self.tv_ratio = column([end / c.tv if c.tv else 1.0 for end, c in zip(ends, group, strict=True)])
        self.leaks = column([c.leak for c in group])
        self.weights = torch.stack([feature_weights(c.loss, spread, power) for c in group])[:, None]  # (K, 1, d)
        self.scale = torch.cat([scale_of(c.loss, z, power, noise) for c in group])  # (K·B,)
        self.target = z.repeat(self.k, 1)  # (K·B, d)
        self.start = starts.flatten(0, 1).clone()  # (K·B, …)
        self.s = self.start.clone()
        self.first, self.second = torch.zeros_like(self.s), torch.zeros_like(self.s)  # Adam's moments
        self.best, self.best_score = self.s.clone(), torch.full((self.k * self.b,), math.inf, device=z.device)

    def run(self, steps: int, what: str) -> int:
        """Descend; how many steps were done before someone pressed Ctrl-C."""
        step = 0
        try:
            with steps_shown(what, steps) as done:
                for step in range(1, steps + 1):
                    self.descend(step, steps)
                    done(step)
        except KeyboardInterrupt:
            return step - 1
        return steps

    def descend(self, step: int, steps: int) -> None:
        """One step of every candidate on every input."""
        gradient, score = self.gradient_and_score(step / steps)
        with torch.no_grad():
            self.remember(score)
            finite = gradient.flatten(1).square().sum(dim=1).isfinite().view(self.each)  # Adam squares it too
            self.lr = torch.where(finite, self.lr, self.lr / 10)
            # what the overflowed point left behind, its gradient, decay and moments, does not reach the new start
            self.first = torch.where(finite, 0.9 * self.first + 0.1 * gradient, 0.0)
            self.second = torch.where(finite, 0.999 * self.second + 0.001 * gradient.square(), 0.0)
            cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
            adam = cosine * (self.first / (1 - 0.9**step)) / ((self.second / (1 - 0.999**step)).sqrt() + 1e-12)
            move = torch.where(self.adam, adam, gradient + self.decay * self.s)
            step_size = self.lr if self.unit is None else self.lr * self.unit
            s = torch.where(finite, self.s - step_size * move, self.best)
            self.s = torch.where(self.box, s.clamp(*self.low_high), s)

    def gradient_and_score(self, progress: float) -> tuple[Tensor, Tensor]:
        """The gradient of every input's loss (K·B, …), and its score (K·B,)."""
        if self.leak is not None:
            self.leak.slopes = self.leaks * max(0.0, 1 - progress / LEAKS_UNTIL)
        s = self.s.requires_grad_(True)
        with self.leak or contextlib.nullcontext():
            misfit = self.misfit(s, self.target)  # (K·B, d)
        loss, variation = self.explained(misfit, s), self.variation(s)
        (gradient,) = torch.autograd.grad((loss + self.tv * self.tv_ratio**progress * variation).sum(), s)
        self.s = s.detach()
        return gradient, self.score(misfit.detach(), (loss + self.tv * self.tv_ratio * variation).detach())

    def explained(self, misfit: Tensor, s: Tensor) -> Tensor:
        """Every input's loss without its variation (K·B,)."""
        weighted = (misfit.view(self.k, self.b, -1) * self.weights).mean(dim=2).flatten() * self.scale
        loss = torch.where(self.l1, misfit.sum(dim=1), weighted)
        if self.unit is not None:
            loss = loss + self.pull * ((s - self.start) / self.unit).square().flatten(1).mean(dim=1)
        return loss

    def variation(self, s: Tensor) -> Tensor:
        """Every image's total variation (K·B,); vectors have none."""
        return total_variation(s) if len(self.shape) == 3 else torch.zeros_like(self.tv)

    def score(self, misfit: Tensor, loss: Tensor) -> Tensor:
        """What every input's best point has least of (K·B,): its residual, or its loss as weighted in the end."""
        return torch.where(self.has_posterior, loss, norm_of(misfit, self.power))

    def remember(self, score: Tensor) -> None:
        """Keep every input's best point; a score that is NaN is never the best."""
        better = score < self.best_score
        self.best = torch.where(better.view(self.each), self.s, self.best)
        self.best_score = torch.where(better, score, self.best_score)

    @torch.no_grad()
    def ended(self, at_the_last: bool) -> tuple[Tensor, Tensor]:
        """The inputs (K, B, …) and their residuals ‖h(x̂) − z‖ / ‖z‖ (K, B).

        Args:
            at_the_last: answer with the last point, wherever it ended, as published; else with the best on the way.
        """
        misfit = self.misfit(self.s, self.target)
        score = self.score(misfit, self.explained(misfit, self.s) + self.tv * self.tv_ratio * self.variation(self.s))
        if at_the_last:
            self.best = torch.where(score.isfinite().view(self.each), self.s, self.best)
        else:
            self.remember(score)
        residual = norm_of(self.misfit(self.best, self.target), self.power) / size_of(self.target, self.power)
        return self.best.view(self.k, self.b, *self.shape), residual.view(self.k, self.b)
