"""Posterior: what a state behind known noise says about its token, weighed with what the language model expects.

    Posterior(model, noise=σ, beam=8, **learned_behind_noise(model, sequences, starts, σ)).invert(states)

log p(token | prefix, h) = −‖F(prefix, token) − h‖² / 2σ² + log p(token | prefix) + constant, for Gaussian noise; for
Laplace noise of scale b = σ/√2 the first term is −‖F(prefix, token) − h‖₁ / b. A wrong token spoils what
follows, so that several prefixes of a prompt are kept, a beam, and all prompts and beams go through the model together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sweetspot.attacks.text.hybrid import Table, learned
from sweetspot.attacks.text.inverter import Inverter, Log
from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.probe import Probe, cached_first_states, directions_of, first_states
from sweetspot.attacks.text.recovery import Commit, Trace
from sweetspot.attacks.text.typical import Typical, cached_typical_states, typical_states
from sweetspot.attacks.text.verification import ROWS
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

BEAM = 8  # prefixes kept of a prompt
CANDIDATES = 1024  # tokens tried at most behind one prefix
FIRST_BATCH, GROWTH = 16, 4  # tokens tried behind a prefix at once, more and more of them
NEGLIGIBLE = 9.0  # nats behind a prompt's best: what is further away has no say
MISSED = 0.002  # of the proposals' probability may be left untried
SURPRISING = 3.0  # standard deviations: where the best token's misfit is further out, the right one was not tried
SMALL = 8192  # tokens: of a larger vocabulary it takes too long to try all, even once
SMOOTHING = 0.03  # of a count of the attacker's text: a token that it never begins with may still come first


class Posterior(Inverter):
    """The attacker of states with known noise: the most probable text, with a probability for each token.

    Args:
        model: the split language model whose cut layer leaked, as it is released.
        noise: the standard deviation of the noise on an entry of a state.
        power: of a difference, that its likelihood goes by: 2 for Gaussian noise, 1 for Laplace noise.
        expecting: the language model whose prior counts, with the same tokens; None: the attacked one. A defended
            model predicts text worse than one that the attacker trains for itself.
        probe: from noisy states to tokens, which orders what is tried; None: the language model's prior alone does.
        typical: where tokens' states lie, which orders what is tried better than a probe; None: it is not known.
        table: the states of all tokens at the first position (V, k); None: they are searched like the others,
        opening: with a probe of its own; None: the same as elsewhere.
        first: how often the attacker's own text begins with each token (V,); None: all are as likely.
        beam: how many prefixes of a prompt are kept; 1 is greedy.
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
        power: float = 2.0,
        expecting: SplitLanguageModel | None = None,
        probe: Probe | None = None,
        typical: Typical | None = None,
        table: Tensor | None = None,
        opening: Probe | None = None,
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
        self.noise, self.power, self.beam, self.at_once = noise, power, beam, at_once
        self.expecting, self.probe, self.typical = expecting, probe, typical
        self.candidates = min(candidates or CANDIDATES, len(self.vocabulary))
        self.opening = opening or probe
        self.directions = directions_of(self.vocabulary)
        self.table = None if table is None else Table(table)
        weight = self.vocabulary.embeddings
        counts = torch.zeros(len(self.vocabulary)) if first is None else first.float()
        self.first = (counts.to(weight) + SMOOTHING).log().log_softmax(dim=0)

    def walk(
        self, states: list[Tensor], truth: Sequence[Sequence[int]] | None, log: Log, done: Callable[[int], None]
    ) -> None:
        """Extend the beams of all prompts position by position, and enter the best text of each at the end."""
        padded = pad_sequence(states, batch_first=True)  # (B, T, k)
        lengths = torch.tensor([len(each) for each in states], device=padded.device)
        beams = Beams(self.model, len(states), padded.device)
        try:
            for t in range(padded.shape[1]):
                beams.advance(lengths > t)
                self.extend(beams, padded[:, t])
                done(int(lengths.clamp_max(t + 1).sum()))
        finally:  # Ctrl-C leaves what is done
            for texts in beams.texts():
                self.enter(texts, padded, log)

    def extend(self, beams: Beams, target: Tensor) -> None:
        """Try tokens behind every prefix, with the prompts' states (B, k), and keep the best few of each prompt."""
        with self.clock.spent_on("propose"):
            prior, seen = self.prior(beams), target[beams.prompt]  # (N, V), (N, k)
            proposed = prior + self.proposed(seen, beams.length)
        with self.clock.spent_on("verify"):
            ranking, scores = self.tried(beams, seen, proposed, prior)
            beams.choose(ranking, scores, self.beam)

    def nats(self, difference: Tensor) -> Tensor:
        """The negative log-likelihood of noise (…, k), up to a constant, (…)."""
        if self.power == 1:
            return difference.abs().sum(dim=-1) * (math.sqrt(2) / self.noise)
        return difference.square().sum(dim=-1) / (2 * self.noise**2)

    def proposed(self, seen: Tensor, position: int) -> Tensor | float:
        """What speaks for each token before any is tried (N, V): its log-likelihood up to a constant, or near it."""
        if position == 0 and self.table is not None:
            return -self.table.distances(seen) / (2 * self.noise**2)
        if self.typical is not None:
            return self.typical.log_likelihood(seen, self.noise)
        probe = self.opening if position == 0 else self.probe
        return 0.0 if probe is None else probe(seen, self.directions)

    def prior(self, beams: Beams) -> Tensor:
        """The language model's log-probability of each token behind each prefix, (N, V)."""
        if beams.length == 0:
            return self.first.expand(len(beams.prompt), -1)
        if self.expecting is not None:
            parts = beams.tokens.split(max(self.at_once // beams.length, 1))
            return torch.cat([self.expecting(part)[:, -1].log_softmax(dim=1) for part in parts])
        states = beams.prefix.states
        assert states is not None
        parts = states.split(max(self.at_once // beams.length, 1))
        hidden = torch.cat([self.model.head.hidden(part)[:, -1] for part in parts])
        log_probabilities: Tensor = self.model.head.lm_head(hidden).log_softmax(dim=1)
        return log_probabilities

    def tried(self, beams: Beams, target: Tensor, proposed: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens in the order of trial behind every prefix (N, C), and their scores, −∞ where one was not tried.

        They are tried in growing batches. The first shows where the states behind a prefix lie, and what follows is
        ranked anew by it. A prefix is done when it has no say beside the best of its prompt, or when hardly any of the
        proposals' probability is left. The greedy prefix is searched as if it were alone.
        """
        ranking, need = self.ranked(proposed)
        scores = torch.full_like(ranking, -math.inf, dtype=prior.dtype)
        best, of_prompt = scores[:, 0].clone(), scores.new_full((beams.prompts,), -math.inf)
        expected, width = torch.zeros_like(best, dtype=torch.bool), target.shape[1]
        far = width / self.power + SURPRISING * math.sqrt(width / self.power)  # nats of the right one: mean, deviation
        live = torch.arange(len(ranking), device=target.device)
        start, size = 0, FIRST_BATCH
        while start < ranking.shape[1] and len(live):
            ids = ranking[live, start : start + size]  # (n, k)
            nats, shift = self.misfits(beams.prefix, target[live], ids, live)
            found = beams.score[live, None] + prior[live].gather(1, ids) - nats
            scores[live, start : start + size] = found
            best[live] = best[live].maximum(found.amax(dim=1))
            expected[live] |= nats.amin(dim=1) <= far
            of_prompt.scatter_reduce_(0, beams.prompt[live], best[live], "amax")
            least = torch.where(beams.greedy[live], best[live], of_prompt[beams.prompt[live]]) - NEGLIGIBLE
            going = best[live] > least
            start, size = start + size, size * GROWTH
            if start == FIRST_BATCH and self.typical is not None and beams.length and start < ranking.shape[1]:
                rows = live[going]
                moved = prior[rows] + self.typical.log_likelihood(target[rows], self.noise, shift[going])
                ranking[rows], need[rows] = self.ranked(moved, ranking[rows, :start])
            live = live[going & ((start < need[live]) | ~expected[live])]
        return ranking, scores

    def ranked(self, proposed: Tensor, tried: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The tokens in the order of trial, those that were tried first, (N, V) → (N, C), and how many are worth it."""
        probability = proposed.softmax(dim=1)
        if tried is not None:
            probability = probability.scatter(1, tried, 2.0)
        value, ranking = probability.topk(self.candidates, dim=1)
        if tried is not None:
            ranking[:, : tried.shape[1]] = tried
        left = 1 - probability.masked_fill(probability > 1, 0).sum(dim=1, keepdim=True)  # what the tried ones had
        covered = left + value.masked_fill(value > 1, 0).cumsum(dim=1)
        return ranking, 1 + (covered < 1 - MISSED).sum(dim=1)

    def misfits(self, prefix: Prefix, target: Tensor, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The nats of F(prefix, token) − h, tokens (n, K) behind the prefixes `rows` (n,) → (n, K), and their shift.

        The shift (n, k) is how far from the tokens' typical states theirs are; 0 where those are not known.
        """
        size = max(self.at_once // ids.shape[1], 1)
        nats, shifts = [], []
        for h, some, row in zip(target.split(size), ids.split(size), rows.split(size), strict=True):
            states = prefix.states_of_rivals(some, row)  # (m, K, k)
            nats.append(self.nats(states - h[:, None]))
            usual = states if self.typical is None else self.typical.mean[some]
            shifts.append((states - usual).mean(dim=1))
        return torch.cat(nats), torch.cat(shifts)

    def enter(self, texts: Texts, states: Tensor, log: Log) -> None:
        """Write the best text of some prompts down, with what speaks for it."""
        length = texts.tokens.shape[1]
        parts = texts.tokens.split(max(self.at_once // length, 1))
        ours = torch.cat([self.model.encoder(part) for part in parts])  # (n, t, k)
        loss = (ours - states[texts.prompt, :length]).square().mean(dim=2)
        log.confidence |= dict(zip(texts.prompt.tolist(), texts.confidence.tolist(), strict=True))
        no_steps, no_trace = torch.zeros_like(texts.prompt), Trace(self.vocabulary, len(texts.prompt), None, on=False)
        for t in range(length):
            commit = Commit(
                texts.tokens[:, t], no_steps.bool(), loss[:, t], no_steps, texts.tried[:, t], texts.probability[:, t]
            )
            log.enter(texts.prompt, states[texts.prompt, t], commit, no_trace)


def learned_behind_noise(
    model: SplitLanguageModel,
    sequences: Sequence[Sequence[int]],
    starts: Tensor,
    noise: float,
    folder: Path | None = None,
    lengths: Sequence[int] | None = None,
    prepare: str = "auto",
) -> dict[str, Any]:
    """What is prepared for a model, its cut and this noise, by the names that `Posterior` has for it.

    Of a small vocabulary all that there is to know: where each token's states lie, and those at the first position. Of
    a larger one as much as the job pays for.

    Args:
        model: as it is released.
        sequences: the attacker's own text.
        starts: the tokens that documents of it begin with (N,).
        noise: the standard deviation of the noise on an entry of a state.
        folder: where it is kept; None: nowhere.
        lengths: of the prompts that are to be recovered; None: any number of them.
        prepare: auto, full or none, of a larger vocabulary.
    """
    first = torch.bincount(starts.flatten().cpu(), minlength=model.vocabulary)
    if model.vocabulary > SMALL:
        return {**learned(model, sequences, folder, noise, lengths, prepare), "first": first}
    if folder is None:
        return {"typical": Typical(typical_states(model, sequences)), "table": first_states(model), "first": first}
    typical = Typical(cached_typical_states(model, sequences, folder))
    return {"typical": typical, "table": cached_first_states(model, folder), "first": first}


@torch.no_grad()
def bayes_given_prefix(inverters: Sequence[Posterior], states: Sequence[Tensor], truth: Tensor) -> list[Tensor]:
    """Whether the most probable token of the whole vocabulary is the true one, behind the true prefix, (B, T) of bool.

    Of all who know the text before a position, this noise and this prior, and read the states up to there, nobody is
    right more often. Who reads what follows, too, may be.

    Args:
        inverters: whose noise and prior count, of one model: one for each noise.
        states: the leaked states behind each (B, T, k).
        truth: the true tokens (B, T).
    """
    model, at_once, device = inverters[0].model, inverters[0].at_once, truth.device
    beams, every = Beams(model, len(truth), device), torch.arange(model.vocabulary, device=device)
    everyone = torch.ones(len(truth), dtype=torch.bool, device=device)
    found: list[list[Tensor]] = [[] for _ in inverters]
    for t in range(truth.shape[1]):
        beams.advance(everyone)
        scores: list[list[Tensor]] = [[] for _ in inverters]
        for part in every.split(max(at_once // len(truth), 1)):
            rivals = beams.prefix.states_of_rivals(part.expand(len(truth), -1), beams.prompt)  # (B, K, k)
            for inverter, seen, kept in zip(inverters, states, scores, strict=True):
                kept.append(-inverter.nats(rivals - seen[:, t, None]))
        for inverter, likelihood, right in zip(inverters, scores, found, strict=True):
            best = (inverter.prior(beams) + torch.cat(likelihood, dim=1)).argmax(dim=1)
            right.append(best == truth[:, t])
        beams.go_on(beams.prompt, truth[:, t], beams.score, beams.greedy)
    return [torch.stack(each, dim=1) for each in found]


@torch.no_grad()
def blind_text(model: SplitLanguageModel, starts: Tensor, length: int, beam: int = BEAM) -> list[int]:
    """The most probable text of a length to somebody who sees no states: what any leak is measured from.

    Args:
        model: whose prior counts.
        starts: the tokens that the attacker's own documents begin with (N,); the text begins as most of them do.
        length: of the text.
        beam: how many texts are followed at once.
    """
    first = torch.bincount(starts.flatten().cpu(), minlength=model.vocabulary).argmax()
    texts = first.to(model.embeddings.weight.device).view(1, 1)
    scores = torch.zeros(1, device=texts.device)
    for _ in range(length - 1):
        following: Tensor = model(texts)[:, -1].log_softmax(dim=1)  # (K, V)
        scores, best = (scores[:, None] + following).flatten().topk(min(beam, len(texts) * model.vocabulary))
        texts = torch.cat([texts[best // model.vocabulary], best[:, None] % model.vocabulary], dim=1)
    found: list[int] = texts[0].tolist()
    return found


class Beams:
    """The prefixes of B prompts that are still thought of, N in all, each with its prompt and its score.

    The greedy one is always among them: a wide beam is then never worse than a narrow one. What is dropped on the way
    keeps its share of the probability: from it follow the probabilities of what is left.

    Args:
        model: the split language model.
        prompts: how many prompts there are.
        device: where the model is.
    """

    def __init__(self, model: SplitLanguageModel, prompts: int, device: torch.device) -> None:
        self.prompts, self.prefix = prompts, Prefix(model, prompts)
        self.prompt = torch.arange(prompts, device=device)  # (N,), ascending, a prompt's best first
        self.score = torch.zeros(prompts, device=device)  # (N,), log-probability up to a constant a prompt
        self.tokens = torch.empty(prompts, 0, dtype=torch.long, device=device)  # (N, t)
        self.greedy = torch.ones_like(self.prompt, dtype=torch.bool)  # (N,), whether it took the best token each time
        self.came_from = self.prompt  # (N,), the row of the prefix that each goes on from
        self.kept = torch.ones(prompts, dtype=torch.float64, device=device)  # (B,), the share that was never dropped
        self.tried = torch.empty(prompts, 0, dtype=torch.long, device=device)  # (B, t)
        self.ended: list[tuple[Tensor, Tensor, Tensor]] = []  # prompts, tokens, scores
        self.steps: list[Step] = []

    @property
    def length(self) -> int:
        """How many tokens the prefixes have."""
        return self.tokens.shape[1]

    def advance(self, going: Tensor) -> None:
        """Put the prompts aside that have ended, the others go on, (B,) of bool, and bring the cache up to date."""
        rows, leaving = going[self.prompt].nonzero()[:, 0], (~going[self.prompt]).nonzero()[:, 0]
        if len(leaving):
            self.ended.append((self.prompt[leaving], self.tokens[leaving], self.score[leaving]))
            self.prompt, self.score, self.tokens = self.prompt[rows], self.score[rows], self.tokens[rows]
            self.greedy, self.came_from = self.greedy[rows], self.came_from[rows]
        if self.length:
            self.prefix.keep(self.came_from)
            self.prefix.commit(self.tokens[:, -1])

    def choose(self, ranking: Tensor, scores: Tensor, beam: int) -> None:
        """Go on with the best few tokens of each prompt, and note what share of its probability is dropped.

        Args:
            ranking: the tokens behind each prefix (N, C).
            scores: of the texts that they make, −∞ where one was not tried (N, C).
            beam: how many are kept.
        """
        total = log_sum(scores.double().logsumexp(dim=1), self.prompt, self.prompts)  # (B,)
        row, column, greedy = self.best_few(scores, beam)
        share = (scores.double() - total[self.prompt, None]).exp() * self.kept[self.prompt, None]
        kept = torch.zeros_like(scores, dtype=torch.bool).index_put_((row, column), torch.tensor(True))
        self.steps.append(Step(self.prompt, self.tokens, ranking, share, kept, self.kept))
        going = torch.zeros_like(self.kept).index_add_(0, self.prompt[row], share[row, column])
        self.kept = torch.where(going > 0, going, self.kept)
        count = torch.zeros_like(self.tried[:, :0].sum(dim=1))
        count.index_add_(0, self.prompt, scores.isfinite().sum(dim=1))
        self.tried = torch.cat([self.tried, count[:, None]], dim=1)
        self.go_on(row, ranking[row, column], scores[row, column], greedy)

    def best_few(self, scores: Tensor, beam: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and columns of the scores (N, C) that are kept, by prompt, the best first, and which are greedy."""
        best = scores.new_full((self.prompts,), -math.inf).scatter_reduce(0, self.prompt, scores.amax(dim=1), "amax")
        greedy = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.argmax(dim=1, keepdim=True), True)
        greedy &= self.greedy[:, None]
        row, column = (greedy | (scores > best[self.prompt, None] - NEGLIGIBLE)).nonzero().unbind(dim=1)
        kept = self.in_order(row, scores[row, column].masked_fill(greedy[row, column], math.inf))
        kept = kept[places(self.prompt[row[kept]]) < beam]
        row, column = row[kept], column[kept]
        order = self.in_order(row, scores[row, column])
        row, column = row[order], column[order]
        return row, column, greedy[row, column]

    def in_order(self, rows: Tensor, scores: Tensor) -> Tensor:
        """The order of texts that go on from these prefixes, by prompt, the best first."""
        order = scores.argsort(descending=True, stable=True)
        return order[self.prompt[rows[order]].argsort(stable=True)]

    def go_on(self, rows: Tensor, tokens: Tensor, scores: Tensor, greedy: Tensor) -> None:
        """Each of these prefixes, once or several times, with one more token; `advance` brings the cache after it."""
        grown = torch.cat([self.tokens[rows], tokens[:, None]], dim=1)
        self.prompt, self.score, self.tokens = self.prompt[rows], scores, grown  # what is entered after Ctrl-C
        self.greedy, self.came_from = greedy, rows

    def texts(self) -> list[Texts]:
        """The best text of every prompt, those of one length together."""
        left = (self.prompt, self.tokens, self.score)
        return [self.best_of(*each) for each in (*self.ended, left) if each[1].numel()]

    def best_of(self, prompt: Tensor, tokens: Tensor, score: Tensor) -> Texts:
        """The best text of each prompt, with the probability of each of its tokens and of all of it."""
        share = (score.double() - log_sum(score.double(), prompt, self.prompts)[prompt]).exp() * self.kept[prompt]
        best = (places(prompt) == 0).nonzero()[:, 0]
        prompts, texts = prompt[best], tokens[best]
        row = torch.full((self.prompts,), -1, device=prompt.device)
        row[prompts] = torch.arange(len(prompts), device=prompt.device)
        agreed = torch.zeros(texts.shape, dtype=torch.float64, device=prompt.device)
        agreed.index_add_(0, row[prompt], (tokens == texts[row[prompt]]) * share[:, None])
        for step in self.steps[: texts.shape[1]]:
            step.add_agreeing(agreed, texts, row)
        probability = agreed.clamp(0, 1).to(score)
        return Texts(prompts, texts, probability, share[best], self.tried[prompts, : texts.shape[1]])


@dataclass
class Step:
    """All that was thought of at one position t, and what of it was dropped.

    Args:
        prompt: of each prefix (N,).
        tokens: the prefixes (N, t).
        ranking: the tokens behind them (N, C).
        share: of the prompt's probability that each of the longer texts has (N, C).
        kept: which of them went on (N, C).
        before: the share of all that was thought of here together (B,), what was dropped earlier has the rest.
    """

    prompt: Tensor
    tokens: Tensor
    ranking: Tensor
    share: Tensor
    kept: Tensor
    before: Tensor

    def add_agreeing(self, agreed: Tensor, texts: Tensor, row: Tensor) -> None:
        """Add the share of what was dropped that agrees with the texts (n, T) at each position, to (n, T).

        What was dropped here agrees where its tokens do. Its later tokens nobody tried: they are taken to agree as
        often as those do that were thought of there.

        Args:
            agreed: what is known so far.
            texts: one a prompt.
            row: the text of each prompt (B,), −1 where it has none.
        """
        inside = (row[self.prompt] >= 0).nonzero()[:, 0]
        place, t = row[self.prompt[inside]], self.tokens.shape[1]
        share, dropped = self.share[inside], self.share[inside].masked_fill(self.kept[inside], 0.0)
        same = self.tokens[inside] == texts[place, :t]
        agreed[:, :t] += torch.zeros_like(agreed[:, :t]).index_add_(0, place, same * dropped.sum(dim=1, keepdim=True))
        same_here = self.ranking[inside] == texts[place, t, None]  # (m, C)
        every, lost = (torch.zeros_like(agreed[:, t]).index_add_(0, place, (same_here * each).sum(dim=1))
                       for each in (share, dropped))  # fmt: skip
        before = torch.ones_like(agreed[:, t])
        before[place] = self.before[self.prompt[inside]]
        agreed[:, t] += lost + (1 - before) * every / before.clamp_min(1e-300)


@dataclass
class Texts:
    """The best texts of n prompts of one length t.

    Args:
        prompt: which prompts (n,).
        tokens: their texts (n, t).
        probability: of each token (n, t).
        confidence: the probability that all tokens are right (n,).
        tried: how many tokens were fed forward at each position (n, t).
    """

    prompt: Tensor
    tokens: Tensor
    probability: Tensor
    confidence: Tensor
    tried: Tensor


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
    most = score.new_full((prompts,), -math.inf).scatter_reduce(0, prompt, score, "amax")
    return most + torch.zeros_like(most).index_add_(0, prompt, (score - most[prompt]).exp()).log()
