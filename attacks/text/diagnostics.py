"""Whether to believe a recovery, without knowing the text; what fails; and how far a cut layer keeps tokens apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.verification import ROWS
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

SUSPICIOUS = 1e-4  # ‖F − h‖ / ‖h‖: right tokens are at fp32's 1e-6, wrong ones above 1e-2
LIKELY = 0.5  # the probability below which a token, or a prompt, is rather wrong than right
DRAWN = 200  # sets of cases, from which the error by chance follows
BINS = 10  # of equal width, in which probabilities are compared with how often they come true
SPACES = (" ", "Ġ", "▁")  # how tokenizers write a space in front of a word
CATEGORIES = ("space-prefixed", "punctuation", "digits", "continuation", "other")

Tokens = Sequence[Sequence[int]]


@dataclass
class Detection:
    """Which prompts look wrong, from the states alone.

    Args:
        flagged: whether a prompt is thought to hold a wrong token.
        first: its first suspicious position, None where there is none.
        score: the larger, the more suspicious: log10 of the cumulative discrete loss at the end or, behind noise, the
            probability that something is wrong.
    """

    flagged: list[bool]
    first: list[int | None]
    score: list[float]


def detect(recovery: Recovery, suspicious: float = SUSPICIOUS, explained: float = 0.0) -> Detection:
    """Flags from the discrete loss, which a wrong commit lifts by many orders of magnitude from its position on.

    Behind known noise the loss says nothing, and the posterior does: a prompt is flagged where it is more likely wrong
    than right, and suspicious from the first token on of which the same is true.

    Args:
        recovery: what an inverter gave back.
        suspicious: ‖F − h‖ / ‖h‖ above which a position is,
        explained: unless its discrete loss is no larger than this, which is what a known channel does by itself.
    """
    first: list[int | None] = []
    if recovery.confidence is not None and recovery.probability is not None:
        for tokens in recovery.probability:
            first.append(next((t for t, each in enumerate(tokens) if each < LIKELY), None))
        return Detection([each < LIKELY for each in recovery.confidence], first, [1 - c for c in recovery.confidence])
    for losses, residuals in zip(recovery.discrete_loss, recovery.residual, strict=True):
        fine = [r <= suspicious or loss <= explained for loss, r in zip(losses, residuals, strict=True)]
        first.append(next((t for t, each in enumerate(fine) if not each), None))
    score = [math.log10(max(losses[-1], 1e-45)) if losses else -45.0 for losses in recovery.cumulative_loss]
    return Detection([each is not None for each in first], first, score)


@dataclass
class DetectorQuality:
    """How good a detection was. Precision, recall and AUROC are NaN where nothing was flagged, wrong, or right.

    Args:
        precision: the fraction of flagged prompts that are wrong.
        recall: the fraction of wrong prompts that are flagged.
        auroc: how often a wrong prompt scores higher than a right one.
        located: the fraction of wrong prompts whose first suspicious position is the first wrong one.
    """

    precision: float
    recall: float
    auroc: float
    located: float


def detector_quality(detection: Detection, tokens: Tokens, truth: Tokens) -> DetectorQuality:
    """The detector's precision, recall and AUROC against the truth."""
    errors = [first_error(ours, true) for ours, true in zip(tokens, truth, strict=True)]
    wrong = [each is not None for each in errors]
    hits = sum(flag and bad for flag, bad in zip(detection.flagged, wrong, strict=True))
    located = sum(bad and at == first for bad, at, first in zip(wrong, errors, detection.first, strict=True))
    return DetectorQuality(
        precision=share(hits, sum(detection.flagged)),
        recall=share(hits, sum(wrong)),
        auroc=auroc(detection.score, wrong),
        located=share(located, sum(wrong)),
    )


def first_error(tokens: Sequence[int], truth: Sequence[int]) -> int | None:
    """The first position where the tokens differ, None where they do not."""
    differing = (t for t, (ours, true) in enumerate(zip(tokens, truth, strict=False)) if ours != true)
    return next(differing, None if len(tokens) == len(truth) else min(len(tokens), len(truth)))


def share(part: int, whole: int) -> float:
    """part / whole, NaN of nothing."""
    return part / whole if whole else math.nan


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """The probability that a positive scores higher than a negative, ties counting half; NaN if there is one kind.

    Example:
        >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
        0.75
    """
    score, is_positive = torch.tensor(scores, dtype=torch.float64), torch.tensor(positive, dtype=torch.bool)
    difference = score[is_positive][:, None] - score[~is_positive][None]  # (P, N)
    return float(((difference > 0).double() + 0.5 * (difference == 0).double()).mean())


@dataclass
class Calibration:
    """How probabilities compare with how often they come true, in bins of equal width.

    Args:
        error: |mean probability − fraction right|, averaged over bins by how much is in them.
        probability: the mean of each bin that is not empty.
        right: the fraction of it that is right.
        count: how much is in it.
        chance: the error that probabilities without any fault are expected to have on as many cases.
    """

    error: float
    probability: list[float]
    right: list[float]
    count: list[int]
    chance: float


def calibration(probability: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Calibration:
    """The expected calibration error of probabilities, with the bins that it is made of; NaN of nothing.

    Example:
        >>> calibration([0.9, 0.9, 0.25, 0.25], [True, True, False, True]).error
        0.175
    """
    said, is_right = np.asarray(probability, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not len(said):
        return Calibration(math.nan, [], [], [], math.nan)
    which = np.minimum((said * bins).astype(int), bins - 1)
    faultless = np.random.default_rng(0).random((DRAWN, len(said))) < said
    outcomes = np.vstack([is_right, faultless])  # (1 + DRAWN, N)
    of_bins = which == np.unique(which)[:, None]  # (bins, N)
    counts = of_bins.sum(axis=1)
    means, shares = of_bins @ said / counts, outcomes @ of_bins.T / counts
    errors = np.abs(shares - means) @ counts / len(said)
    return Calibration(float(errors[0]), means.tolist(), shares[0].tolist(), counts.tolist(), float(errors[1:].mean()))


def category(text: str) -> str:
    """What kind of token this is.

    Example:
        >>> [category(text) for text in (" the", ",", "2024", "ing", "\\\\n")]
        ['space-prefixed', 'punctuation', 'digits', 'continuation', 'other']
    """
    if text.startswith(SPACES) and len(text) > 1:
        return "space-prefixed"
    if text.isdecimal():
        return "digits"
    if text.isalpha():
        return "continuation"
    if text and all(not each.isalnum() and not each.isspace() and each.isprintable() for each in text):
        return "punctuation"
    return "other"


def failures_by_category(tokens: Tokens, truth: Tokens, text_of: Callable[[int], str]) -> dict[str, int]:
    """How many tokens of each kind were missed, counted by the true token.

    Args:
        tokens: what was recovered.
        truth: what it should have been.
        text_of: a token as text, with its space.
    """
    pairs = ((a, b) for ours, true in zip(tokens, truth, strict=True) for a, b in zip(ours, true, strict=False))
    missed = Counter(category(text_of(true)) for ours, true in pairs if ours != true)
    return {each: missed[each] for each in CATEGORIES}


@dataclass
class Margin:
    """Distance between the true token's state and the nearest other token's, over N positions.

    Args:
        distance: ‖F(true) − F(other)‖ (N,).
        size: ‖F(true)‖ (N,), to compare it with.
    """

    distance: Tensor
    size: Tensor

    @property
    def min(self) -> float:
        """The smallest: what noise must reach before anything is confused."""
        return float(self.distance.min())

    @property
    def median(self) -> float:
        """The usual one."""
        return float(self.distance.median())

    @property
    def relative(self) -> Tensor:
        """The same as fractions of the states' sizes (N,)."""
        return self.distance / self.size.clamp_min(1e-30)


@torch.no_grad()
def one_step_margin(model: SplitLanguageModel, prompts: Tokens, tokens: int | None = None) -> Margin:
    """How far apart the cut layer keeps the true token from all others, with the true prefix before it.

    Args:
        model: the split language model.
        prompts: the true tokens.
        tokens: try only so many, those nearest to the true one in embedding, which gives an upper bound of the
            margin; None: the whole vocabulary.
    """
    model.eval()
    vocabulary = Vocabulary(model.embeddings.weight)
    device = vocabulary.embeddings.device
    every = torch.arange(len(vocabulary), device=device)
    distances, sizes = [], []
    for prompt in prompts:
        prefix = Prefix(model, 1)
        for token in torch.tensor(prompt, dtype=torch.long, device=device).split(1):
            others = every if tokens is None else vocabulary.nearest(vocabulary.embeddings[token], tokens + 1)[0]
            true, nearest = nearest_other(prefix, token, others[others != token])
            distances.append(nearest)
            sizes.append(torch.linalg.vector_norm(true))
            prefix.commit(token)
    return Margin(torch.stack(distances).cpu(), torch.stack(sizes).cpu())


def nearest_other(prefix: Prefix, token: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The state of a token (1,) behind the prefix (1, d), and its distance to the nearest state of the others."""
    true = prefix.states_of(token)
    only = torch.zeros_like(token)
    apart = [
        torch.linalg.vector_norm(prefix.states_of_rivals(part[None], only)[0] - true, dim=1).min()
        for part in others.split(ROWS)
    ]
    return true, torch.stack(apart).min()
