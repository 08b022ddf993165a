"""What our text inverters are timed against: the two papers' policies as they are run there.

Both take one prompt at a time, keep no keys and values, and feed one candidate forward at a time, whole prefix
included. Their settings are those of our own policies, so that they decide the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from sweetspot.attacks.text.probe import ROWS, Probe, directions_of, first_states, states_and_tokens, with_random
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.recovery import Clock
from sweetspot.attacks.text.sipit import CLIP, LR, RESET_EVERY, RESET_PER_TOKENS
from sweetspot.attacks.text.verification import TOLERANCE
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

SHARE = 20  # one in so many of the parts of a whole preparation is timed: they are all alike


@dataclass
class Walk:
    """One prompt's recovery.

    Args:
        clock: seconds by what they were spent on.
        done: told how many positions are.
        tokens: what was committed.
        steps: gradient steps at each position.
        tried: tokens fed forward at each position.
    """

    clock: Clock
    done: Callable[[int], None]
    tokens: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)

    @property
    def seconds(self) -> dict[str, float]:
        """All the time that it took, by what it was spent on."""
        return self.clock.seconds

    def enter(self, token: int, steps: int, tried: int) -> None:
        """Commit a position."""
        self.tokens.append(token)
        self.steps.append(steps)
        self.tried.append(tried)
        self.done(len(self.tokens))


@torch.no_grad()
def targets_of(model: SplitLanguageModel, prompt: Sequence[int]) -> Tensor:
    """The leaked states (T, d), each computed by running its own prefix: as long as the inputs they are checked on."""
    return torch.stack([state_behind(model, prompt[:t], prompt[t]) for t in range(len(prompt))])


def state_behind(model: SplitLanguageModel, prefix: Sequence[int], token: int) -> Tensor:
    """The state of a token (d,) with the whole prefix computed anew."""
    ids = torch.tensor([[*prefix, token]], device=model.embeddings.weight.device)
    z: Tensor = model.encoder(ids)[0, -1]
    return z


def loss_behind(model: SplitLanguageModel, prefix: Sequence[int], e: Tensor, h: Tensor) -> Tensor:
    """The MSE of a proxy (d,), differentiable in it, with the whole prefix computed anew."""
    before = model.embeddings.weight.detach()[list(prefix)]  # (t, d)
    return F.mse_loss(model.encoder(embeddings=torch.cat([before, e[None]])[None])[0, -1], h)


def sipit_as_released(model: SplitLanguageModel, targets: Tensor, done: Callable[[int], None], seed: int = 0) -> Walk:
    """SIPIT for one prompt's states (T, d)."""
    walk, generator = Walk(Clock(targets.device), done), torch.Generator().manual_seed(seed)
    for h in targets:
        start = int(torch.randint(model.vocabulary, (1,), generator=generator))
        token, steps = sipit_position(model, walk.tokens, h, start, walk.clock)
        walk.enter(token, steps, steps)
    return walk


def sipit_position(
    model: SplitLanguageModel, prefix: Sequence[int], h: Tensor, candidate: int, clock: Clock
) -> tuple[int, int]:
    """The first candidate that reproduces h in every coordinate, else the best one seen; and the steps it took."""
    embeddings = model.embeddings.weight.detach()
    every = RESET_EVERY * (1 if prefix else 1 + len(embeddings) // RESET_PER_TOKENS)
    e, banned = embeddings[candidate].clone(), torch.zeros(len(embeddings), dtype=torch.bool, device=h.device)
    best, best_loss = candidate, torch.inf
    for step in range(1, len(embeddings) + 1):
        with clock.spent_on("gradient"):  # a forward pass and a backward one
            e.requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_behind(model, prefix, e, h), e)
            gradient *= (CLIP / (gradient.norm() + 1e-6)).clamp_max(1.0)
        with clock.spent_on("verify"), torch.no_grad():  # and another forward pass
            state = state_behind(model, prefix, candidate)
            if torch.allclose(state, h, rtol=1e-5, atol=1e-5):
                return candidate, step
            loss = F.mse_loss(state, h).item()
            best, best_loss = (candidate, loss) if loss < best_loss else (best, best_loss)
        with clock.spent_on("propose"):
            e = e.detach() - LR * gradient
            banned[candidate] = True
            distances = (embeddings - e).norm(dim=1)  # by way of (V, d)
            candidate = int(distances.masked_fill_(banned, torch.inf).argmin())
            if step % every == 0:
                e = embeddings[candidate].clone()
    return best, len(embeddings)


def single_commit_as_published(
    model: SplitLanguageModel, targets: Tensor, done: Callable[[int], None], loop: InnerLoop, candidates: int
) -> Walk:
    """Single commit for one prompt's states (T, d), from zeros, with the nearest tokens by their ℓ2 distance."""
    walk, embeddings = Walk(Clock(targets.device), done), model.embeddings.weight.detach()
    for h in targets:
        with walk.clock.spent_on("gradient"):
            e, steps = descended(model, walk.tokens, h, loop)
        with walk.clock.spent_on("propose"):
            distances = (embeddings - e).norm(dim=1)
            order = distances.topk(min(candidates, len(embeddings)), largest=False).indices.tolist()
        with walk.clock.spent_on("verify"):
            token, tried = first_verified(model, walk.tokens, h, order)
        walk.enter(token, steps, tried)
    return walk


def descended(model: SplitLanguageModel, prefix: Sequence[int], h: Tensor, loop: InnerLoop) -> tuple[Tensor, int]:
    """Where torch's own AdamW takes a proxy (d,), and in how many steps."""
    e = torch.zeros_like(h, requires_grad=True)
    optimiser = torch.optim.AdamW([e], lr=loop.lr, weight_decay=loop.weight_decay)
    floor = loop.lr_floor if loop.anneal else loop.lr
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, loop.steps, eta_min=floor)
    small = loop.loss_threshold * h.square().mean()
    for step in range(loop.steps):
        loss = loss_behind(model, prefix, e, h)
        if loss < small:
            return e.detach(), step
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([e], loop.clip or torch.inf)
        optimiser.step()
        schedule.step()
    return e.detach(), loop.steps


@torch.no_grad()
def first_verified(
    model: SplitLanguageModel, prefix: Sequence[int], h: Tensor, order: Sequence[int]
) -> tuple[int, int]:
    """The first token in order that reproduces h, else the nearest; and how many were tried."""
    for tried, token in enumerate(order, 1):
        if (state_behind(model, prefix, token) - h).norm() <= TOLERANCE * h.norm():
            return token, tried
    return order[0], len(order)


def seconds_of_whole_preparation(model: SplitLanguageModel, sequences: Sequence[Sequence[int]]) -> float:
    """How long a probe takes whose softmax is over the whole vocabulary, one epoch of all the text, and a full table.

    Its batches are of 128, and a part of all three, states, steps and table, is timed.
    """
    text = with_random(sequences, model.vocabulary, seed=0)[::SHARE]
    began = time.perf_counter()
    states, tokens = states_and_tokens(model.eval(), text)
    directions = directions_of(Vocabulary(model.embeddings.weight))
    probe = Probe(model.state_width, model.width).to(states)
    probe.mean, probe.spread = states.mean(dim=0), states.std(dim=0) + 1e-6
    optimiser = torch.optim.Adam(probe.parameters(), lr=3e-3)
    with torch.enable_grad():
        for batch in torch.arange(len(tokens), device=tokens.device).split(128):
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(probe(states[batch], directions), tokens[batch]).backward()
            optimiser.step()
    count = max(model.vocabulary // SHARE, min(ROWS, model.vocabulary))
    halfway = time.perf_counter()
    first_states(model, torch.arange(count, device=tokens.device))
    return SHARE * (halfway - began) + model.vocabulary / count * (time.perf_counter() - halfway)
