"""Posterior: what a state behind known noise says about its token, weighed with what the language model expects.

    Posterior(model, noise=σ, beam=8, **learned).invert(states)

log p(token | prefix, h) = −‖F(prefix, token) − h‖² / 2σ² + log p(token | prefix) + constant. A wrong token spoils what
follows, so that several prefixes of a prompt are kept, a beam, and all prompts and beams go through the model together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sweetspot.attacks.text.hybrid import Table
from sweetspot.attacks.text.inverter import Inverter, Log, Position
from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.probe import Probe, directions_of
from sweetspot.attacks.text.recovery import Commit, Trace
from sweetspot.attacks.text.verification import ROWS
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

BEAM = 8  # prefixes kept of a prompt
CANDIDATES = 1024  # tokens tried at most behind one prefix
FIRST_BATCH, GROWTH = 32, 4  # tokens tried behind a prefix at once, more and more of them
NEGLIGIBLE = 9.0  # nats behind a prompt's best: what is further away has no say
SMOOTHING = 0.1  # of a count of the attacker's text: a token that it never begins with may still come first


class Posterior(Inverter):
    """The attacker of states with known Gaussian noise: the most probable text, with a probability for each token.

    Args:
        model: the split language model whose cut layer leaked, as it is released.
        noise: the standard deviation of the noise on an entry of a state.
        probe: from noisy states to tokens, which orders what is tried; None: the language model's prior alone does.
        table: the states of all tokens at the first position (V, k); None: they are computed.
        first: how often the attacker's own text begins with each token (V,); None: all are as likely.
        beam: how many prefixes of a prompt are kept.
        candidates: the most tokens tried behind a prefix.
        at_once: the most tokens in one forward pass.
        seed: as everywhere; nothing here is random.
        observe: as everywhere; there are no curves here.
    """

    key = "hybrid"

    def __init__(
        self,
        model: SplitLanguageModel,
        noise: float,
        probe: Probe | None = None,
        table: Tensor | None = None,
        first: Tensor | None = None,
        beam: int = BEAM,
        candidates: int | None = None,
        at_once: int = ROWS,
        seed: int = 0,
        observe: bool = True,
    ) -> None:
        super().__init__(model, seed, observe)
        if beam < 1:
            raise UserError(f"--beam must be at least 1; got {beam}")
        if not noise > 0:
            raise UserError(f"the posterior needs known noise; got a standard deviation of {noise:g}")
        self.noise, self.probe, self.beam, self.at_once = noise, probe, beam, at_once
        self.candidates = min(candidates or CANDIDATES, len(self.vocabulary))
        self.directions = directions_of(self.vocabulary)
        self.table = None if table is None else Table(table)
        weight = self.vocabulary.embeddings
        counts = torch.zeros(len(self.vocabulary)) if first is None else first.float()
        self.first = (counts.to(weight) + SMOOTHING).log().log_softmax(dim=0)

    def recover(self, position: Position, trace: Trace) -> Commit:
        raise NotImplementedError  # a beam has no single prefix to commit behind: see `walk`

    def walk(
        self, states: list[Tensor], truth: Sequence[Sequence[int]] | None, log: Log, done: Callable[[int], None]
    ) -> None:
        """Extend the beams of all prompts position by position, and enter the best text of each at the end."""
        padded = pad_sequence(states, batch_first=True)  # (B, T, k)
        lengths = torch.tensor([len(each) for each in states], device=padded.device)
        beams = Beams(self.model, len(states), padded.device)
        walked = 0
        try:
            for t in range(padded.shape[1]):
                self.extend(beams, padded[:, t], lengths > t)
                walked = int((lengths.clamp_max(t + 1)).sum())
                done(walked)
        finally:  # Ctrl-C leaves what is done
            beams.enter(log, padded, self.vocabulary, self.at_once)

    def extend(self, beams: Beams, target: Tensor, going: Tensor) -> None:
        """Try tokens behind every prefix of the prompts that go on, and keep the best few of each prompt."""
        beams.finish(~going)
        with self.clock.spent_on("propose"):
            prior = self.prior(beams)  # (N, V)
            seen = target[beams.prompt]
            if beams.length == 0 and self.table is not None:
                scores = prior - self.table.distances(seen) / (2 * self.noise**2)
            else:
                scores = prior if self.probe is None else prior + self.probe(seen, self.directions)
            ranking = scores.topk(self.candidates, dim=1).indices
        with self.clock.spent_on("verify"):
            trials = self.tried(beams, seen, ranking, prior)
            beams.choose(trials, self.beam)

    def prior(self, beams: Beams) -> Tensor:
        """The language model's log-probability of each token behind each prefix, (N, V)."""
        if beams.length == 0:
            return self.first.expand(len(beams.prompt), -1)
        states = beams.prefix.states
        assert states is not None
        parts = states.split(max(self.at_once // beams.length, 1))
        hidden = torch.cat([self.model.head.hidden(part)[:, -1] for part in parts])
        log_probabilities: Tensor = self.model.head.lm_head(hidden).log_softmax(dim=1)
        return log_probabilities

    def tried(self, beams: Beams, target: Tensor, ranking: Tensor, prior: Tensor) -> Trials:
        """The score of every token that was tried behind every prefix, in growing batches.

        A prefix is done when the best of its last batch is hopelessly behind the best of its prompt.
        """
        trials = Trials(beams)
        live = torch.arange(len(ranking), device=target.device)
        start, size = 0, FIRST_BATCH
        while start < ranking.shape[1] and len(live):
            ids = ranking[live, start : start + size]  # (n, k)
            rows = max(self.at_once // ids.shape[1], 1)
            parts = zip(live.split(rows), ids.split(rows), strict=True)
            squares = torch.cat([self.squares(beams.prefix, target[part], some, part) for part, some in parts])
            likelihood = -squares / (2 * self.noise**2)
            scores = beams.score[live, None] + likelihood + prior[live].gather(1, ids)
            trials.add(live, ids, scores)
            hopeful = scores.amax(dim=1) > trials.best[beams.prompt[live]] - NEGLIGIBLE
            live = live[hopeful]
            start, size = start + size, size * GROWTH
        return trials

    def squares(self, prefix: Prefix, target: Tensor, ids: Tensor, rows: Tensor) -> Tensor:
        """‖F(prefix, token) − h‖² of each token, ids (n, K) behind the prefixes `rows` (n,) → (n, K)."""
        return (prefix.states_of_rivals(ids, rows) - target[:, None]).square().sum(dim=2)


@torch.no_grad()
def bayes_given_prefix(inverter: Posterior, states: Tensor, truth: Tensor) -> Tensor:
    """Whether the most probable token of the whole vocabulary is the true one, behind the true prefix, (B, T) of bool.

    For this noise and this prior no attack is right more often at a position, whatever it knows of the text before.

    Args:
        inverter: whose model, noise and prior count.
        states: the leaked states (B, T, k).
        truth: the true tokens (B, T).
    """
    beams = Beams(inverter.model, len(truth), states.device)
    every = torch.arange(len(inverter.vocabulary), device=states.device)
    found = []
    for t in range(truth.shape[1]):
        target, prior = states[:, t], inverter.prior(beams)
        width = max(inverter.at_once // len(truth), 1)
        squares = [
            inverter.squares(beams.prefix, target, part.expand(len(truth), -1), beams.prompt)
            for part in every.split(width)
        ]
        scores = prior - torch.cat(squares, dim=1) / (2 * inverter.noise**2)
        found.append(scores.argmax(dim=1) == truth[:, t])
        beams.go_on(beams.prompt, truth[:, t], beams.score)
    return torch.stack(found, dim=1)


@dataclass
class Trials:
    """What trying tokens behind prefixes came to, all of it, one entry a token tried.

    Args:
        beams: whose prefixes they were tried behind.
    """

    beams: Beams
    row: list[Tensor] = field(default_factory=list)
    token: list[Tensor] = field(default_factory=list)
    score: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = self.beams.prompts
        self.best = torch.full((count,), -math.inf, device=self.beams.prompt.device)
        self.count = torch.zeros_like(self.best, dtype=torch.long)

    def add(self, rows: Tensor, ids: Tensor, scores: Tensor) -> None:
        """Enter the tokens tried behind some prefixes, (n,) and (n, K)."""
        prompt = self.beams.prompt[rows]
        self.best = self.best.scatter_reduce(0, prompt, scores.amax(dim=1).to(self.best), "amax")
        self.count = self.count.index_add(0, prompt, torch.full_like(prompt, ids.shape[1]))
        for column, values in ((self.row, rows[:, None].expand_as(ids)), (self.token, ids), (self.score, scores)):
            column.append(values.flatten())


class Beams:
    """The prefixes of B prompts that are still thought of, N in all, each with its prompt and its score.

    What is dropped on the way keeps its share of the probability: from it follow the probabilities of what is left.

    Args:
        model: the split language model.
        prompts: how many prompts there are.
        device: where the model is.
    """

    def __init__(self, model: SplitLanguageModel, prompts: int, device: torch.device) -> None:
        self.model, self.prompts, self.device = model, prompts, device
        self.prefix = Prefix(model, prompts)
        self.prompt = torch.arange(prompts, device=device)  # (N,), ascending
        self.score = torch.zeros(prompts, device=device)  # (N,), log-probability up to a constant a prompt
        self.tokens = torch.empty(prompts, 0, dtype=torch.long, device=device)  # (N, t)
        self.kept = torch.ones(
            prompts, dtype=torch.float64, device=device
        )  # the share of it all that was never dropped
        self.tried = torch.empty(prompts, 0, dtype=torch.long, device=device)  # (B, t)
        self.ended: list[Ended] = []
        self.dropped: list[Dropped] = []

    @property
    def length(self) -> int:
        """How many tokens the prefixes have."""
        return self.tokens.shape[1]

    def choose(self, trials: Trials, beam: int) -> None:
        """Go on with the best few tokens of each prompt, and note what share of its probability is dropped."""
        row, token, score = (torch.cat(each) for each in (trials.row, trials.token, trials.score))
        prompt = self.prompt[row]
        order = score.argsort(descending=True)
        order = order[prompt[order].argsort(stable=True)]  # by prompt, the best first
        place = places(prompt[order])
        top = order[(place < beam) & (score[order] > trials.best[prompt[order]] - NEGLIGIBLE)]
        total = log_sum(score, prompt, self.prompts)  # (B,)
        share = (score - total[prompt]).double().exp()  # of the prompt's own probability
        chosen = torch.zeros_like(share, dtype=torch.bool).index_fill(0, top, True)
        # what is dropped, by the prefix that it came from
        lost = torch.zeros(len(self.prompt), dtype=torch.float64, device=self.device)
        lost.index_add_(0, row[~chosen], share[~chosen])
        self.dropped.append(Dropped(self.prompt, self.tokens, lost * self.kept[self.prompt]))
        still = torch.zeros_like(self.kept).index_add_(0, prompt[top], share[top])
        self.kept = torch.where(still > 0, self.kept * still, self.kept)
        self.tried = torch.cat([self.tried, trials.count[:, None]], dim=1)
        self.go_on(row[top], token[top], score[top])

    def go_on(self, rows: Tensor, tokens: Tensor, scores: Tensor) -> None:
        """Each of these prefixes, one by one or several times, with one more token."""
        self.prefix.keep(rows)
        self.prompt, self.score = self.prompt[rows], scores
        self.tokens = torch.cat([self.tokens[rows], tokens[:, None]], dim=1)
        self.prefix.commit(tokens)

    def finish(self, over: Tensor) -> None:
        """Put the prompts aside that have ended, (B,) of bool."""
        leaving = over[self.prompt]
        if leaving.any():
            self.ended.append(Ended(self.prompt[leaving], self.tokens[leaving], self.score[leaving]))
            rows = (~leaving).nonzero()[:, 0]
            self.prefix.keep(rows)
            self.prompt, self.score, self.tokens = self.prompt[rows], self.score[rows], self.tokens[rows]

    def enter(self, log: Log, states: Tensor, vocabulary: Vocabulary, at_once: int) -> None:
        """Write the most probable text of each prompt down, with the probability of each of its tokens."""
        self.finish(torch.ones(self.prompts, dtype=torch.bool, device=self.device))
        for each in self.ended:
            if each.tokens.shape[1]:
                self.enter_texts(each, log, states, vocabulary, at_once)

    def enter_texts(self, ended: Ended, log: Log, states: Tensor, vocabulary: Vocabulary, at_once: int) -> None:
        """The same for prompts of one length."""
        best = ended.first()
        prompts, texts = ended.prompt[best], ended.tokens[best]  # (n,), (n, t)
        share = self.shares(ended)
        probability = self.probability(ended, share, prompts, texts)
        log.confidence |= dict(zip(prompts.tolist(), share[best].tolist(), strict=True))
        length = texts.shape[1]
        parts = texts.split(max(at_once // length, 1))
        ours = torch.cat([self.model.encoder(part) for part in parts])  # (n, t, k)
        loss = (ours - states[prompts, :length]).square().mean(dim=2)
        nothing = torch.zeros_like(prompts)
        for t in range(length):
            no_trace = Trace(vocabulary, len(prompts), None, on=False)
            commit = Commit(texts[:, t], nothing.bool(), loss[:, t], nothing, self.tried[prompts, t], probability[:, t])
            log.enter(prompts, states[prompts, t], commit, no_trace)

    def shares(self, ended: Ended) -> Tensor:
        """The probability of each whole text that is left, (n,): its share of all that was thought of on the way."""
        left = ended.score - log_sum(ended.score, ended.prompt, self.prompts)[ended.prompt]
        return left.double().exp() * self.kept[ended.prompt]

    def probability(self, ended: Ended, share: Tensor, prompts: Tensor, texts: Tensor) -> Tensor:
        """The probability of each token of the best texts, (n, t): of all texts thought of on the way, who agree there.

        A text that was dropped agrees where it had the same token by then; what it would have gone on with is unknown,
        and counts against.
        """
        row = torch.full((self.prompts,), -1, device=self.device)
        row[prompts] = torch.arange(len(prompts), device=self.device)
        every = [Dropped(ended.prompt, ended.tokens, share), *self.dropped]
        agreed = torch.zeros(texts.shape, dtype=torch.float64, device=self.device)
        for each in every:
            inside = row[each.prompt] >= 0
            place, t = row[each.prompt[inside]], min(each.tokens.shape[1], texts.shape[1])
            same = each.tokens[inside, :t] == texts[place, :t]
            agreed[:, :t] += torch.zeros_like(agreed[:, :t]).index_add_(0, place, same * each.share[inside, None])
        return agreed.clamp(0, 1).to(ended.score)


@dataclass
class Ended:
    """Prefixes that are whole texts: their prompts (n,), tokens (n, t) and scores (n,)."""

    prompt: Tensor
    tokens: Tensor
    score: Tensor

    def first(self) -> Tensor:
        """The place of each prompt's best, which comes first."""
        return (places(self.prompt) == 0).nonzero()[:, 0]


@dataclass
class Dropped:
    """The share of their prompt's probability that left at prefixes: prompts (n,), tokens (n, t) and shares (n,)."""

    prompt: Tensor
    tokens: Tensor
    share: Tensor


def places(prompt: Tensor) -> Tensor:
    """The place of each entry among those of its prompt, prompts ascending, (N,) → (N,).

    Example:
        >>> places(torch.tensor([0, 0, 2, 2, 2]))
        tensor([0, 1, 0, 1, 2])
    """
    index = torch.arange(len(prompt), device=prompt.device)
    is_new = torch.ones_like(prompt, dtype=torch.bool)
    is_new[1:] = prompt[1:] != prompt[:-1]
    return index - torch.where(is_new, index, 0).cummax(dim=0).values


def log_sum(score: Tensor, prompt: Tensor, prompts: int) -> Tensor:
    """log Σ exp(score) over the entries of each prompt, (N,) → (B,); −∞ where it has none."""
    most = torch.full((prompts,), -math.inf, dtype=score.dtype, device=score.device)
    most = most.scatter_reduce(0, prompt, score, "amax")
    shifted = (score - most[prompt]).double().exp()
    return most + torch.zeros(prompts, dtype=torch.float64, device=score.device).index_add_(
        0, prompt, shifted
    ).log().to(score)
