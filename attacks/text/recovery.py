"""What an inverter gives back: the tokens, whether to believe them, and what could be seen on the way."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sweetspot.attacks.text.vocabulary import Vocabulary


@dataclass
class Recovery:
    """The texts behind the hidden states of B prompts. One list a prompt, one entry a position.

    Args:
        tokens: what was committed.
        verified: whether the committed token reproduces the leaked state within the tolerance.
        discrete_loss: MSE between the leaked state and the committed token's.
        residual: the same as ‖F − h‖ / ‖h‖, which means the same at every layer of every model.
        steps: gradient steps (for SIPIT: repeats).
        tried: tokens that were fed forward.
        seconds: all the time that went into `propose`, `verify`, `gradient` and what is left, `other`.
        probability: of each token where noise leaves room for doubt, its share of the posterior over all texts thought
            of; None where tokens are verified instead.
        confidence: of each prompt, the probability that all of its tokens are right.
        curves: the continuous loss at each step, (steps,); empty where no gradient was needed or nothing recorded.
        ranks: how many tokens were nearer to the proxy than the true one at each step, (steps,); needs the truth.
    """

    tokens: list[list[int]]
    verified: list[list[bool]]
    discrete_loss: list[list[float]]
    residual: list[list[float]]
    steps: list[list[int]]
    tried: list[list[int]]
    seconds: dict[str, float]
    probability: list[list[float]] | None = None
    confidence: list[float] | None = None
    curves: list[list[Tensor]] | None = None
    ranks: list[list[Tensor]] | None = None

    @property
    def cumulative_loss(self) -> list[list[float]]:
        """The discrete loss summed up to each position: a wrong commit shows as a step that never goes away."""
        return [list(itertools.accumulate(losses)) for losses in self.discrete_loss]

    @property
    def seconds_per_token(self) -> dict[str, float]:
        """Where the time of one token goes, with the whole under `total`."""
        count = max(sum(map(len, self.tokens)), 1)
        split = {part: spent / count for part, spent in self.seconds.items()}
        return {**split, "total": sum(split.values())}

    @property
    def verified_share(self) -> float:
        """The fraction of tokens that are verified."""
        every = [each for prompt in self.verified for each in prompt]
        return sum(every) / max(len(every), 1)


@dataclass
class Commit:
    """What is decided at one position, for the B prompts that reach it: (B,) each, as in a Recovery."""

    tokens: Tensor
    verified: Tensor
    discrete_loss: Tensor
    steps: Tensor
    tried: Tensor
    probability: Tensor | None = None


@dataclass
class Clock:
    """Seconds by what they were spent on; on a GPU the queue is emptied first, or they would land on the wrong part."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: {"propose": 0.0, "verify": 0.0, "gradient": 0.0})

    @contextlib.contextmanager
    def spent_on(self, part: str) -> Iterator[None]:
        """`with clock.spent_on("verify"):`"""
        began = self.now()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + self.now() - began

    def now(self) -> float:
        """Seconds since whenever."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class Trace:
    """What is recorded at one position. A policy writes to it and cannot read from it, so the truth decides nothing.

    Args:
        vocabulary: the tokens' embeddings.
        prompts: how many prompts reach the position.
        truth: the true tokens (B,), None where nobody knows them.
        on: whether anything is recorded.
    """

    def __init__(self, vocabulary: Vocabulary, prompts: int, truth: Tensor | None, on: bool) -> None:
        self._vocabulary, self._prompts, self._truth, self._on = vocabulary, prompts, truth, on
        self._losses: list[Tensor] = []
        self._ranks: list[Tensor] = []

    def step(self, proxies: Tensor, losses: Tensor, rows: Tensor, going: Tensor | None = None) -> None:
        """Record the proxies (n, d) of some prompts (n,) and their losses (n,), for those that are still going."""
        if not self._on:
            return
        going = torch.ones_like(rows, dtype=torch.bool) if going is None else going
        self._losses.append(self._spread(rows, going, losses.float(), torch.nan))
        if self._truth is not None:
            ranks = self._vocabulary.rank_of(self._truth[rows], proxies)
            self._ranks.append(self._spread(rows, going, ranks, -1))

    def _spread(self, rows: Tensor, going: Tensor, values: Tensor, missing: float) -> Tensor:
        """Values of some prompts as one of all prompts (B,)."""
        every = torch.full((self._prompts,), missing, dtype=values.dtype, device=values.device)
        every[rows] = torch.where(going, values, missing)
        return every

    def curves(self) -> list[Tensor]:
        """Each prompt's loss at each of its steps."""
        if not self._losses:
            return [torch.empty(0)] * self._prompts
        return [column[~column.isnan()] for column in torch.stack(self._losses, dim=1).cpu()]

    def ranks(self) -> list[Tensor]:
        """Each prompt's rank of the true token at each of its steps."""
        if not self._ranks:
            return [torch.empty(0, dtype=torch.long)] * self._prompts
        return [column[column >= 0] for column in torch.stack(self._ranks, dim=1).cpu()]
