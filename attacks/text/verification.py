"""Trying tokens: each is fed forward behind the cached prefix, and compared with the state that leaked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.text.prefix import Prefix

# ‖F − h‖ / ‖h‖ of the right token, cached against uncached prefix, is at most 3e-6 in fp32 (30 blocks, 10 tokens);
# of the nearest other token it is above 2e-3, even at first positions, whose states share a few huge coordinates
TOLERANCE = 2e-5
FIRST_BATCH, GROWTH = 16, 4  # a good ranking ends in the first batch; a bad one soon gets batches worth their overhead
ROWS = 1024  # candidates in one forward pass, which bounds its memory


@dataclass
class Trials:
    """What trying ranked tokens came to, for N prompts, (N,) each.

    Args:
        leading_loss: MSE of the first token of the ranking.
        first: the first token in order that ended the search, −1 where none did.
        first_loss: its MSE.
        best: the token with the smallest MSE of all that were tried.
        best_loss: its MSE.
        tried: how many were fed forward.
    """

    leading_loss: Tensor
    first: Tensor
    first_loss: Tensor
    best: Tensor
    best_loss: Tensor
    tried: Tensor

    @classmethod
    def none_yet(cls, target: Tensor) -> Trials:
        """Before anything is tried."""
        loss = torch.full((len(target),), math.inf, dtype=target.dtype, device=target.device)
        token = torch.full((len(target),), -1, device=target.device)
        none = {name: loss.clone() for name in ("leading_loss", "first_loss", "best_loss")}
        return cls(first=token, best=token.clone(), tried=torch.zeros_like(token), **none)


def allowed_loss(target: Tensor, tolerance: float) -> Tensor:
    """The MSE that ‖F − h‖ / ‖h‖ = tolerance amounts to, (N, d) → (N,)."""
    return target.square().mean(dim=1).clamp_min(1e-30) * tolerance**2


def discrete_losses(prefix: Prefix, target: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
    """MSE of every token tried, ids (N, K) for the prompts `rows` (N,) with their states (N, d) → (N, K)."""
    return (prefix.states_of_rivals(ids, rows) - target[:, None]).square().mean(dim=2)


def try_in_order(
    prefix: Prefix,
    target: Tensor,
    ranking: Tensor,
    limit: Tensor,
    rows: Tensor,
    at_once: int = ROWS,
    first: int = FIRST_BATCH,
    growth: int = GROWTH,
) -> Trials:
    """Feed each prompt's ranked tokens forward in growing batches, until a batch holds one within the limit.

    Args:
        prefix: what is committed already.
        target: the leaked states (N, d).
        ranking: the tokens to try, in order (N, K).
        limit: the MSE that ends a prompt's search (N,).
        rows: the place of each prompt in the prefix (N,).
        at_once: the most tokens in one forward pass, over all prompts.
        first: how many tokens of each prompt are tried in the first batch,
        growth: and how many times as many in each that follows.
    """
    trials = Trials.none_yet(target)
    live = torch.arange(len(target), device=target.device)
    start, size = 0, first
    while start < ranking.shape[1] and len(live):
        size = min(size, max(at_once // len(live), 1))
        ids = ranking[live, start : start + size]  # (n, k)
        parts = zip(live.split(at_once), ids.split(at_once), strict=True)  # more prompts than fit take turns
        losses = torch.cat([discrete_losses(prefix, target[part], some, rows[part]) for part, some in parts])
        if start == 0:
            trials.leading_loss[live] = losses[:, 0]
        note_best(trials, live, ids, losses)
        note_first(trials, live, ids, losses, limit[live])
        start, size = start + size, size * growth
        live = live[trials.first[live] < 0]
    return trials


def note_best(trials: Trials, live: Tensor, ids: Tensor, losses: Tensor) -> None:
    """Enter the best of a batch of trials, ids and losses (n, k), of the prompts `live` (n,)."""
    trials.tried[live] += ids.shape[1]
    smallest, where = losses.min(dim=1, keepdim=True)
    better = smallest[:, 0] < trials.best_loss[live]
    for name, values in (("best", ids), ("best_loss", losses)):
        known = getattr(trials, name)
        known[live] = torch.where(better, values.gather(1, where)[:, 0], known[live])


def note_first(trials: Trials, live: Tensor, ids: Tensor, losses: Tensor, limit: Tensor) -> None:
    """Enter the first token of a batch within the limit."""
    within = losses <= limit[:, None]
    earliest = within.int().argmax(dim=1, keepdim=True)  # the first of equals
    found = within.any(dim=1)
    trials.first[live] = torch.where(found, ids.gather(1, earliest)[:, 0], -1)
    trials.first_loss[live] = torch.where(found, losses.gather(1, earliest)[:, 0], torch.inf)
