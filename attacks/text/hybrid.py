"""Hybrid: rank the tokens cheaply, try a growing batch of them, and spend gradients only where that fails.

    Hybrid.prepared(model, sequences, folder).invert(states)

Noise-free states are recovered exactly: what no proposal finds, the rest of the vocabulary does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sweetspot.attacks.text.inverter import Inverter, Position
from sweetspot.attacks.text.probe import (
    Probe,
    cached_first_states,
    cached_probe,
    directions_of,
    first_states,
    train_probe,
)
from sweetspot.attacks.text.proxy import InnerLoop, descend
from sweetspot.attacks.text.recovery import Commit, Trace
from sweetspot.attacks.text.verification import ROWS, TOLERANCE, Trials, allowed_loss, try_in_order
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

PROPOSALS = 16 + 64 + 256 + 1024 + 4096  # the ranking's share before gradients: where the true token is in 98 %
NEAREST = 1024  # tokens tried around a proxy
LOOP = InnerLoop(steps=300)
TABLE = 16  # rows of the first-position table that are tried: its order is right up to rounding


class Hybrid(Inverter):
    """Our policy, for all prompts at once.

    Args:
        model: the split language model whose cut layer leaked.
        probe: from states to tokens; None: the prior proposes alone.
        table: the states of all tokens at the first position (V, d); None: that position is searched like the others.
        tolerance: ‖F − h‖ / ‖h‖ up to which a token counts as verified.
        candidates: the most tokens tried at a position before the best of them is taken; None: the whole vocabulary.
        loop: how a proxy descends where proposals fail.
        proposals: how many ranked tokens are tried before gradients.
        at_once: the most tokens in one forward pass.
        seed: for whatever is random.
        observe: record loss curves, and rank trajectories where the truth is given.
    """

    key = "hybrid"

    def __init__(
        self,
        model: SplitLanguageModel,
        probe: Probe | None = None,
        table: Tensor | None = None,
        tolerance: float = TOLERANCE,
        candidates: int | None = None,
        loop: InnerLoop = LOOP,
        proposals: int = PROPOSALS,
        at_once: int = ROWS,
        seed: int = 0,
        observe: bool = True,
    ) -> None:
        super().__init__(model, seed, observe)
        self.probe, self.tolerance, self.loop, self.at_once = probe, tolerance, loop, at_once
        whole = len(self.vocabulary)
        self.proposals, self.candidates = proposals, min(candidates or whole, whole)
        self.directions = directions_of(self.vocabulary)
        self.table = None if table is None else Table(table)
        self.foreseen: Tensor | None = None

    @classmethod
    def prepared(
        cls, model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path | None = None, **options: Any
    ) -> Hybrid:
        """With a probe trained on the attacker's own token sequences, and a table, kept in a folder if one is given."""
        return cls(model, **learned(model, sequences, folder), **options)

    def look_over(self, states: list[Tensor]) -> None:
        """Run the server's part on all leaked states once, up to the last matrix: what each foresees of the next."""
        with self.clock.spent_on("propose"):
            padded = pad_sequence(states, batch_first=True)  # (B, T, d); what is padded comes after, and is not seen
            parts = padded.split(max(self.at_once // padded.shape[1], 1))
            self.foreseen = torch.cat([self.model.head.hidden(z) for z in parts])

    def recover(self, position: Position, trace: Trace) -> Commit:
        """The token with the smallest discrete loss of all that were tried until one was good enough."""
        target, rows = position.target, position.rows
        limit = allowed_loss(target, self.tolerance)
        steps = torch.zeros_like(rows)
        if position.prefix.length == 0 and self.table is not None:
            with self.clock.spent_on("propose"):
                ranking = self.table.nearest(target, TABLE)
            best = self.tried(position, ranking, rows)
        else:
            best, steps = self.search(position, trace)
        return Commit(best.best, best.best_loss <= limit, best.best_loss, steps, best.tried)

    def search(self, position: Position, trace: Trace) -> tuple[Trials, Tensor]:
        """Proposals, then the tokens around a proxy, then all the rest; with the gradient steps of each prompt."""
        rows, steps = position.rows, torch.zeros_like(position.rows)
        with self.clock.spent_on("propose"):
            prior = self.prior(position)  # (B, V)
            scores = prior if self.probe is None else prior + self.probe(position.target, self.directions)
            ranking = scores.topk(min(self.proposals, self.candidates), dim=1).indices
        best = self.tried(position, ranking, rows)
        left = self.left(best, rows)
        if len(left) and ranking.shape[1] < self.candidates:
            steps[left] = self.gradient(position, left, best, trace)
            left = self.left(best, left)
        if len(left) and ranking.shape[1] < self.candidates:
            with self.clock.spent_on("propose"):
                rest = scores[left].topk(self.candidates, dim=1).indices[:, ranking.shape[1] :]
            self.try_more(position, rest, left, best)
        return best, steps

    def prior(self, position: Position) -> Tensor:
        """The language model's own log-probability of each token (B, V); the first position has none."""
        t = position.prefix.length
        if t == 0 or self.foreseen is None:
            return torch.zeros(len(position.target), len(self.vocabulary)).to(position.target)
        log_probabilities: Tensor = self.model.head.lm_head(self.foreseen[position.prompts, t - 1]).log_softmax(dim=1)
        return log_probabilities

    def tried(self, position: Position, ranking: Tensor, rows: Tensor) -> Trials:
        """Trials of some prompts, (n, K) tokens each, until one is verified."""
        with self.clock.spent_on("verify"):
            target = position.target[rows]
            limit = allowed_loss(target, self.tolerance)
            return try_in_order(position.prefix, target, ranking, limit, rows, self.at_once)

    def try_more(self, position: Position, ranking: Tensor, rows: Tensor, best: Trials) -> None:
        """The same, entered into what is known of all prompts."""
        more = self.tried(position, ranking, rows)
        better = more.best_loss < best.best_loss[rows]
        best.best[rows] = torch.where(better, more.best, best.best[rows])
        best.best_loss[rows] = torch.where(better, more.best_loss, best.best_loss[rows])
        best.first[rows], best.tried[rows] = more.first, best.tried[rows] + more.tried

    def gradient(self, position: Position, rows: Tensor, best: Trials, trace: Trace) -> Tensor:
        """Steps taken (n,), after which the tokens around the proxies were tried."""
        target = position.target[rows]
        with self.clock.spent_on("gradient"):
            start = self.vocabulary.mean.expand_as(target)  # beat zeros and random tokens
            proxies, steps = descend(position.prefix, target, start, rows, self.loop, trace)
        with self.clock.spent_on("propose"):
            ranking = self.vocabulary.nearest(proxies, NEAREST)
        self.try_more(position, ranking, rows, best)
        return steps

    def left(self, best: Trials, rows: Tensor) -> Tensor:
        """Those of the prompts for which nothing was good enough."""
        return rows[best.first[rows] < 0]


def learned(
    model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path | None = None, noise: float = 0.0
) -> dict[str, Any]:
    """The probe and the table of a model and its cut, by the names that `Hybrid` has for them.

    Args:
        model: as it is released.
        sequences: the attacker's own text.
        folder: where both are kept; None: nowhere.
        noise: the standard deviation of the noise that the probe has to read through.
    """
    if folder is None:
        return {"probe": train_probe(model, sequences, noise=noise), "table": first_states(model)}
    return {"probe": cached_probe(model, sequences, folder, noise=noise), "table": cached_first_states(model, folder)}


class Table:
    """The states of all tokens at the first position, by distance to a leaked one.

    They share large coordinates, which would drown the differences in ‖S‖² − 2S·h: they are centred first.
    """

    def __init__(self, states: Tensor) -> None:
        self.mean = states.mean(dim=0)
        self.states = states - self.mean  # (V, d)
        self.squares = self.states.square().sum(dim=1)

    def nearest(self, target: Tensor, count: int) -> Tensor:
        """The tokens whose states are nearest, (B, d) → (B, count)."""
        return self.distances(target).topk(min(count, len(self.states)), dim=1, largest=False).indices

    def distances(self, target: Tensor) -> Tensor:
        """The squared distance of each token's state, up to a constant a row, (B, k) → (B, V)."""
        return torch.addmm(self.squares[None], target - self.mean, self.states.T, alpha=-2)
