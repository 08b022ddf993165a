"""How much of a text came back: a score for each pair (recovered, original), as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import torch
from torch import Tensor

from sweetspot.errors import UserError

Tokens = Sequence[Sequence[int]]


def exact_match(recovered: Tokens, original: Tokens) -> Tensor:
    """1 where a prompt is right at every position, else 0, (B,); its mean is the papers' EM.

    Example:
        >>> exact_match([[5, 7], [5, 8]], [[5, 7], [5, 7]])
        tensor([1., 0.])
    """
    same_count(recovered, original)
    return torch.tensor([float(list(ours) == list(true)) for ours, true in zip(recovered, original, strict=True)])


def token_accuracy(recovered: Tokens, original: Tokens) -> Tensor:
    """The fraction of each prompt's positions that are right, (B,); a position that is missing or too many is wrong.

    Example:
        >>> token_accuracy([[5, 7], [5]], [[5, 8], [5, 7]])
        tensor([0.5000, 0.5000])
    """
    same_count(recovered, original)
    scores = []
    for ours, true in zip(recovered, original, strict=True):
        right = sum(a == b for a, b in zip(ours, true, strict=False))
        scores.append(right / max(len(ours), len(true), 1))
    return torch.tensor(scores)


def similarity(recovered: Sequence[str], original: Sequence[str]) -> Tensor:
    """2·M / T of each pair of texts, M the characters that match in order and T all of both, (B,).

    Example:
        >>> similarity(["abcd"], ["bcde"])
        tensor([0.7500])
    """
    same_count(recovered, original)
    pairs = zip(recovered, original, strict=True)
    # without autojunk: it would leave frequent characters of longer texts out
    return torch.tensor([SequenceMatcher(None, ours, true, autojunk=False).ratio() for ours, true in pairs])


def same_count(recovered: Sequence[object], original: Sequence[object]) -> None:
    """Refuse lists that are not pairs."""
    if len(recovered) != len(original):
        raise UserError(f"there are {len(recovered)} recovered prompts for {len(original)} originals")
