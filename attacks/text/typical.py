"""Typical states: where each token's state usually lies, and how far prefixes move it; what a noisy state is held to.

    typical = typical_states(model, sequences)
    typical.log_likelihood(states, noise)           # (N, k) → (N, V), up to a constant a row

A token's state behind two prefixes differs mostly by a shift that all tokens share. So a few tokens tried behind a
prefix tell its shift, and with it where the states of all others lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.probe import cached, fingerprint
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

PREFIXES = 8  # of the attacker's own text, behind each of which the whole vocabulary is tried
LONGEST = 12  # tokens in such a prefix
ROWS = 1024  # tokens in one forward pass


class Typical:
    """A Gaussian for each token's state: its mean over prefixes, and one covariance for all tokens.

    Args:
        states: of all tokens behind some prefixes (J, V, k).
    """

    def __init__(self, states: Tensor) -> None:
        self.mean = states.mean(dim=0)  # (V, k)
        apart = states - self.mean
        shared = apart.mean(dim=1, keepdim=True)  # (J, 1, k), what a prefix does to all tokens
        count = max(len(states) - 1, 1) * states.shape[1]
        self.covariance = torch.einsum("jvk,jvl->kl", apart, apart) / count
        self.left = torch.einsum("jvk,jvl->kl", apart - shared, apart - shared) / count  # once the shift is known
        self.whitened: dict[tuple[float, bool], tuple[Tensor, Tensor, Tensor]] = {}

    def log_likelihood(self, states: Tensor, noise: float, shift: Tensor | None = None) -> Tensor:
        """log p(state | token) of states behind noise of this standard deviation, up to a constant a row, → (N, V).

        Args:
            states: as they leaked (N, k).
            noise: on each of their entries.
            shift: what each row's prefix adds to all tokens' states (N, k); None: unknown.
        """
        transform, means, squares = self.whitening(noise, shift is not None)
        seen = (states if shift is None else states - shift) @ transform
        return torch.addmm(-0.5 * squares[None], seen, means.T)

    def whitening(self, noise: float, shifted: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The map that makes noise and prefixes round (k, k), the tokens' means behind it (V, k), and their squares."""
        if (noise, shifted) not in self.whitened:
            spread = self.left if shifted else self.covariance
            values, vectors = torch.linalg.eigh(spread.double())
            transform = (vectors * (values.clamp_min(0.0) + noise**2).rsqrt()).to(self.mean)
            means = (self.mean - self.mean.mean(dim=0)) @ transform  # centred: what all share would drown the rest
            offset = self.mean.mean(dim=0) @ transform
            squares = means.square().sum(dim=1) + 2 * means @ offset
            self.whitened[noise, shifted] = transform, means, squares
        return self.whitened[noise, shifted]


@torch.no_grad()
def typical_states(model: SplitLanguageModel, sequences: Sequence[Sequence[int]], seed: int = 0) -> Tensor:
    """The states of all tokens behind some prefixes of the attacker's own text, (J, V, k)."""
    generator, device = torch.Generator().manual_seed(seed), model.embeddings.weight.device
    every, only = torch.arange(model.vocabulary, device=device), torch.zeros(1, dtype=torch.long, device=device)
    longest = min(LONGEST, model.context - 1, max(map(len, sequences)))
    long_enough = [each for each in sequences if len(each) >= longest]
    found = []
    for length in torch.randint(1, longest + 1, (PREFIXES,), generator=generator).tolist():
        chosen = long_enough[int(torch.randint(len(long_enough), (1,), generator=generator))]
        prefix = Prefix(model, 1)
        for token in chosen[:length]:
            prefix.commit(torch.tensor([token], device=device))
        found.append(torch.cat([prefix.states_of_rivals(part[None], only)[0] for part in every.split(ROWS)]))
    return torch.stack(found)


def cached_typical_states(model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path) -> Tensor:
    """The same of this model, cut and text: from the folder, or computed and put there."""
    recipe = repr((PREFIXES, LONGEST, [list(map(int, each)) for each in sequences]))
    path = folder / f"typical-{fingerprint(model, recipe)}.pt"
    return cached(path, lambda: {"states": typical_states(model, sequences)}, model.embeddings.weight.device)["states"]
