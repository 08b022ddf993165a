"""EpochSums: an epoch's loss, penalty and accuracy, without a step ever waiting for a number."""

from __future__ import annotations

import torch
from torch import Tensor


class EpochSums:
    """Figures of every batch, kept where they were computed; they are added up once, when the epoch ends."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.losses: list[Tensor] = []
        self.penalties: list[Tensor] = []
        self.correct: list[Tensor] = []

    def add(self, logits: Tensor, y: Tensor, loss: Tensor, penalty: Tensor) -> None:
        """Keep one batch's figures: its mean loss, its penalty, how many answers were right."""
        self.counts.append(len(y))
        self.losses.append(loss.detach())
        self.penalties.append(penalty.detach())
        self.correct.append((logits.detach().argmax(dim=1) == y).sum())

    def total(self, device: torch.device) -> Tensor:
        """Σ examples, Σ loss, Σ penalty, Σ right answers over the examples of this device, (4,)."""
        if not self.counts:
            return torch.zeros(4, device=device)
        count = torch.tensor(self.counts, device=device, dtype=torch.float32)
        loss = (torch.stack(self.losses).float() * count).sum()
        penalty = (torch.stack(self.penalties).float() * count).sum()
        return torch.stack([count.sum(), loss, penalty, torch.stack(self.correct).sum().float()])

    def penalty_broke_first(self) -> bool:
        """Whether the penalty ceased to be a finite number in an earlier step than the loss, or alone."""

        def first_break(values: list[Tensor]) -> int:
            finite = torch.stack(values).isfinite().tolist()
            return finite.index(False) if False in finite else len(finite)

        return first_break(self.penalties) < first_break(self.losses)

    def penalty_range(self) -> Tensor:
        """The smallest and the largest penalty of a batch, (2,)."""
        penalties = torch.stack(self.penalties).float()
        return torch.stack([penalties.min(), penalties.max()])
