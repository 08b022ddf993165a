"""SIPIT: the reference policy. A proxy descends, and at each step the nearest token not yet tried is tried.

Its decisions are those of the released one; a step costs one position instead of the whole prefix, for all prompts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.attacks.text.inverter import Position, StepwiseInverter
from sweetspot.attacks.text.proxy import clipped, loss_and_gradient
from sweetspot.attacks.text.recovery import Commit, Trace
from sweetspot.attacks.text.verification import TOLERANCE, allowed_loss
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

LR, CLIP = 1.0, 1.0
RESET_EVERY = 50  # steps until the proxy jumps to its candidate
RESET_PER_TOKENS = 25_000  # at the first position, which is harder, as many times longer as the vocabulary has these


class Sipit(StepwiseInverter):
    """The reference policy, for all prompts at once.

    Args:
        model: the split language model whose cut layer leaked.
        rtol: a token is accepted when each coordinate of its state is within `atol + rtol · |h|`,
        atol: see `rtol`,
        tolerance: or when ‖F − h‖ / ‖h‖ is at most this. The released policy compares states that are computed alike,
            bit by bit; behind a cached prefix the right token's state is off by fp32's rounding, which in a large model
            exceeds `atol` (1e-4 of a state of norm 1000). Other tokens are nowhere near: the decisions are the same.
        repeats: the most steps at a position; None: as many as there are tokens.
        seed: for the start tokens.
        observe: record loss curves, and rank trajectories where the truth is given.
    """

    key = "sipit"

    def __init__(
        self,
        model: SplitLanguageModel,
        rtol: float = 1e-5,
        atol: float = 1e-5,
        tolerance: float = TOLERANCE,
        repeats: int | None = None,
        seed: int = 0,
        observe: bool = True,
    ) -> None:
        super().__init__(model, seed, observe)
        self.rtol, self.atol, self.tolerance = rtol, atol, tolerance
        self.repeats = min(repeats or len(self.vocabulary), len(self.vocabulary))

    def recover(self, position: Position, trace: Trace) -> Commit:
        """The first token tried that reproduces the state; when all repeats are used up, the best one seen."""
        search = Search(self, position)
        for step in range(1, self.repeats + 1):
            with self.clock.spent_on("verify"):
                search.try_candidates()
            if len(search.live) == 0:
                break
            with self.clock.spent_on("gradient"):
                search.descend(trace)
            with self.clock.spent_on("propose"):
                search.propose(reset=step % self.reset_every(position) == 0)
        return Commit(search.best, search.verified, search.best_loss, search.steps, search.steps.clone())

    def reset_every(self, position: Position) -> int:
        """Steps between two jumps of the proxy to its candidate."""
        if position.prefix.length > 0:
            return RESET_EVERY
        return RESET_EVERY * (1 + len(self.vocabulary) // RESET_PER_TOKENS)


class Search:
    """One position's search, for B prompts, of which `live` are not done yet."""

    def __init__(self, policy: Sipit, position: Position) -> None:
        self.policy, self.prefix, self.target = policy, position.prefix, position.target
        self.embeddings = policy.vocabulary.embeddings
        self.live = position.rows
        self.candidates = policy.random_tokens(position)  # (n,), of the live ones
        self.proxies = self.embeddings[self.candidates]  # (n, d)
        self.banned = torch.zeros(len(self.live), len(self.embeddings), dtype=torch.bool, device=self.live.device)
        self.best, self.best_loss = self.candidates.clone(), torch.full_like(self.target[:, 0], torch.inf)
        self.verified, self.steps = torch.zeros_like(self.live, dtype=torch.bool), torch.zeros_like(self.live)

    def try_candidates(self) -> None:
        """Feed each candidate forward; a prompt whose candidate is accepted is done."""
        target = self.target[self.live]
        states = self.prefix.states_of(self.candidates, self.prefix.unless_all(self.live))
        losses = (states - target).square().mean(dim=1)
        alike = torch.isclose(states, target, rtol=self.policy.rtol, atol=self.policy.atol).all(dim=1)
        accepted = alike | (losses <= allowed_loss(target, self.policy.tolerance))
        better = accepted | (losses < self.best_loss[self.live])
        self.best[self.live] = torch.where(better, self.candidates, self.best[self.live])
        self.best_loss[self.live] = torch.where(better, losses, self.best_loss[self.live])
        self.verified[self.live] = accepted
        self.steps[self.live] += 1
        self.banned[torch.arange(len(self.live), device=self.live.device), self.candidates] = True
        self.keep(~accepted)

    def keep(self, going: Tensor) -> None:
        """Go on with these only."""
        if not going.all():
            self.live, self.candidates = self.live[going], self.candidates[going]
            self.proxies, self.banned = self.proxies[going], self.banned[going]

    def descend(self, trace: Trace) -> None:
        """One step of each proxy."""
        losses, gradient = loss_and_gradient(self.prefix, self.proxies, self.target[self.live], self.live)
        trace.step(self.proxies, losses, self.live)
        self.proxies = self.proxies - LR * clipped(gradient, CLIP)

    def propose(self, reset: bool) -> None:
        """The nearest token not yet tried becomes the candidate, and the proxy jumps to it when it is time."""
        distances = self.policy.vocabulary.distances(self.proxies).masked_fill_(self.banned, torch.inf)
        self.candidates = distances.argmin(dim=1)
        if reset:
            self.proxies = self.embeddings[self.candidates]
