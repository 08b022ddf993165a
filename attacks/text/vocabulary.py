"""The embedding matrix, and which tokens lie near a vector that is none of them."""

from __future__ import annotations

import torch
from torch import Tensor

METRICS = ("l2", "cosine", "dot", "centred")


class Vocabulary:
    """All tokens' embeddings (V, d), with what a ranking needs of them computed once."""

    def __init__(self, embeddings: Tensor) -> None:
        self.embeddings = embeddings.detach()  # (V, d)
        self.squares = self.embeddings.square().sum(dim=1)  # (V,)
        self.mean = self.embeddings.mean(dim=0)  # (d,)
        # ‖E − mean‖² of each token (V,), without a second matrix of the vocabulary
        self.centred_squares = (self.squares - 2 * self.embeddings @ self.mean + self.mean.square().sum()).clamp_min(0)

    def __len__(self) -> int:
        return len(self.embeddings)

    def distances(self, vectors: Tensor) -> Tensor:
        """‖E‖² − 2E·e, (N, d) → (N, V): the squared distances up to a constant a row, without a V × d temporary."""
        return torch.addmm(self.squares[None], vectors, self.embeddings.T, alpha=-2)

    def unlikeness(self, vectors: Tensor, metric: str = "l2") -> Tensor:
        """How far each token is from each vector, (N, d) → (N, V): comparable within a row.

        `centred` is the cosine of what is left without the mean of all embeddings.
        """
        if metric == "l2":
            return self.distances(vectors)
        if metric == "centred":
            vectors = vectors - self.mean
            dot = vectors @ self.embeddings.T - (vectors @ self.mean)[:, None]
            return -dot / self.centred_squares.sqrt().clamp_min(1e-12)
        dot = vectors @ self.embeddings.T
        # ‖e‖ is the same for a whole row, so the cosine's order needs the tokens' norms alone
        return -dot if metric == "dot" else -dot / self.squares.sqrt().clamp_min(1e-12)

    def nearest(self, vectors: Tensor, count: int, metric: str = "l2") -> Tensor:
        """The tokens nearest to each vector, nearest first, (N, d) → (N, count)."""
        return self.unlikeness(vectors, metric).topk(min(count, len(self)), dim=1, largest=False).indices

    def rank_of(self, tokens: Tensor, vectors: Tensor) -> Tensor:
        """How many tokens are strictly nearer to each vector than the given one, (N,) and (N, d) → (N,)."""
        distances = self.distances(vectors)
        return (distances < distances.gather(1, tokens[:, None])).sum(dim=1)
