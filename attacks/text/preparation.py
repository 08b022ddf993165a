"""How much an attacker prepares for a job: as much text as pays for the tokens that are to be recovered.

    Plan.of(model, sequences, lengths).said(seconds_per_token)

The unit of cost is one token fed forward. A token that no probe ranks takes about a thousand trials (the language model
has the true one among its first 84 in 66 %); behind a probe of 4,000 tokens it takes tens, behind one of 30,000 about
ten. So a probe pays even for one short text, and its text grows with the job.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sweetspot.attacks.text.probe import OPENINGS, RANDOM_SHARE
from sweetspot.errors import check_one_of
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.progress import WORTH_SAYING, duration
from sweetspot.runs.choices import PREPARE

OWN_PER_TOKEN = 50  # tokens of own text for each to recover: about what a probe of more text saves it in trials
LEAST_OWN = 4000  # below, a linear map of several hundred entries is not determined
FITTING = 0.15  # of a forward pass, roughly: what the probe's own training adds to a token of text


@dataclass(frozen=True)
class Plan:
    """What is prepared.

    Args:
        sequences: the part of the attacker's own text that the probe learns from; none: no probe.
        table: whether the states of all tokens at the first position are computed,
        opening: or a probe of first positions learns from some of them.
        recover: how many tokens are to be recovered, where it is known.
        vocabulary: how many tokens there are.
    """

    sequences: Sequence[Sequence[int]]
    table: bool
    opening: bool
    recover: int | None
    vocabulary: int

    @classmethod
    def of(
        cls,
        model: SplitLanguageModel,
        sequences: Sequence[Sequence[int]],
        lengths: Sequence[int] | None = None,
        prepare: str = "auto",
    ) -> Plan:
        """The plan for prompts of these lengths; None: for any number of them.

        A table of V states is only built where V is not much larger than the sample that the other probe learns from:
        that one has the right token first in nine of ten, for a small part of the cost.
        """
        check_one_of("--prepare", prepare, PREPARE)
        recover = None if lengths is None else sum(lengths)
        if prepare == "none":
            return cls([], False, False, recover, model.vocabulary)
        small = model.vocabulary <= 2 * OPENINGS
        if recover is None or prepare == "full":
            return cls(sequences, small, not small, recover, model.vocabulary)
        return cls(
            share_of(sequences, max(OWN_PER_TOKEN * recover, LEAST_OWN)), small, not small, recover, model.vocabulary
        )

    @property
    def tokens(self) -> int:
        """How many tokens are fed forward."""
        own = sum(map(len, self.sequences)) / (1 - RANDOM_SHARE)
        return round(own) + (self.vocabulary if self.table else OPENINGS if self.opening else 0)

    def said(self, model: SplitLanguageModel) -> str | None:
        """One line on what is prepared, why, how long it takes and how to do without; None: not worth it."""
        if not self.sequences:
            return None
        seconds = self.tokens * (1 + FITTING) * seconds_per_token(model, self.sequences)
        if seconds < WORTH_SAYING:
            return None
        own = sum(map(len, self.sequences))
        first = f"the first positions of {self.vocabulary if self.table else OPENINGS:,} tokens"
        why = "any number of texts" if self.recover is None else f"{self.recover:,} tokens to recover"
        return (
            f"preparing for {why}: a probe on {own:,} tokens of own text and {first}, about {duration(seconds)}, "
            f"once per model and layer; --prepare none does without, and tries more"
        )


def share_of(sequences: Sequence[Sequence[int]], tokens: int) -> Sequence[Sequence[int]]:
    """So many of the sequences, evenly from all of them, that they hold about this many tokens."""
    whole = sum(map(len, sequences))
    if whole <= tokens:
        return sequences
    count = max(round(len(sequences) * tokens / whole), 1)
    return [sequences[i * len(sequences) // count] for i in range(count)]


@torch.no_grad()
def seconds_per_token(model: SplitLanguageModel, sequences: Sequence[Sequence[int]]) -> float:
    """How long one token takes in a forward pass of one of the sequences, the first pass being a warm-up."""
    ids = torch.as_tensor(sequences[0], device=model.embeddings.weight.device)[None, : model.context]
    model.eval().encoder(ids[:, :1])
    began = time.perf_counter()
    model.encoder(ids).sum().cpu()  # waits for the device
    return (time.perf_counter() - began) / ids.shape[1]
