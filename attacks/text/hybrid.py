"""Hybrid: rank the tokens cheaply, try a growing batch of them, and spend gradients only where that fails.

    Hybrid.prepared(model, sequences, folder).invert(states)

Noise-free states are recovered exactly: what no proposal finds, the rest of the vocabulary does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sweetspot.attacks.text.inverter import Log, Position, StepwiseInverter
from sweetspot.attacks.text.preparation import Plan
from sweetspot.attacks.text.probe import (
    Probe,
    cached_first_states,
    cached_opening_probe,
    cached_probe,
    directions_of,
    first_states,
    probe_path,
    table_path,
    train_opening_probe,
    train_probe,
)
from sweetspot.attacks.text.proxy import InnerLoop, descend
from sweetspot.attacks.text.recovery import Commit, Trace
from sweetspot.attacks.text.texts import Texts
from sweetspot.attacks.text.verification import ROWS, TOLERANCE, Trials, allowed_loss, try_in_order
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

PROPOSALS = 16 + 64 + 256 + 1024 + 4096  # the ranking's share before gradients: where the true token is in 98 %
# tokens in the first batch, where the best guess was wrong: half the time the next few hold the right one; and how the
# batches grow: most of what a good probe leaves to be tried is what a batch holds beyond the right token
FIRST_TRIED, TRIED_GROWTH = 4, 2
LIKELY = 4 + 8 + 16 + 32 + 64  # those tried first: to put thousands in order takes longer than to try these
# of the logits, beside the probe's scores: .25 to .5 ranked best on text like its own, .5 to 1 on news
PRIOR_WEIGHT = 0.5
SCORES = 2**26  # scores of tokens held at once
NEAREST = 1024  # tokens tried around a proxy
LOOP = InnerLoop(steps=300)
TABLE = 16  # rows of the first-position table that are tried: its order is right up to rounding


class Hybrid(StepwiseInverter):
    """Our policy, for all prompts at once.

    Args:
        model: the split language model whose cut layer leaked.
        probe: from states to tokens; None: the prior proposes alone.
        table: the states of all tokens at the first position (V, d); None: that position is searched like the others,
        opening: with a probe of its own; None: the same as elsewhere.
        tolerance: ‖F − h‖ / ‖h‖ up to which a token counts as verified.
        candidates: the most tokens tried at a position before the best of them is taken; None: the whole vocabulary.
        loop: how a proxy descends where proposals fail.
        proposals: how many ranked tokens are tried before gradients.
        at_once: the most tokens in one forward pass.
        seed: for whatever is random.
        observe: record loss curves, and rank trajectories where the truth is given.
    """

    key = "hybrid"

    def __init__(
        self,
        model: SplitLanguageModel,
        probe: Probe | None = None,
        table: Tensor | None = None,
        opening: Probe | None = None,
        tolerance: float = TOLERANCE,
        candidates: int | None = None,
        loop: InnerLoop = LOOP,
        proposals: int = PROPOSALS,
        at_once: int = ROWS,
        seed: int = 0,
        observe: bool = True,
    ) -> None:
        super().__init__(model, seed, observe)
        self.probe, self.tolerance, self.loop, self.at_once = probe, tolerance, loop, at_once
        self.opening = opening or probe
        whole = len(self.vocabulary)
        self.proposals, self.candidates = proposals, min(candidates or whole, whole)
        self.directions = directions_of(self.vocabulary)
        self.table = None if table is None else Table(table)
        self.foreseen: Tensor | None = None
        self.held: Tensor | None = None  # the scores of all tokens at all positions but the first (B, T − 1, V)

    @classmethod
    def prepared(
        cls, model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path | None = None, **options: Any
    ) -> Hybrid:
        """With a probe trained on the attacker's own token sequences, and a table, kept in a folder if one is given."""
        return cls(model, **learned(model, sequences, folder), **options)

    def look_over(self, states: list[Tensor]) -> None:
        """Run the server's part on all leaked states once, up to the last matrix: what each foresees of the next."""
        with self.clock.spent_on("propose"):
            padded = pad_sequence(states, batch_first=True)  # (B, T, d); what is padded comes after, and is not seen
            parts = padded.split(max(self.at_once // padded.shape[1], 1))
            self.foreseen = torch.cat([self.model.head.hidden(z) for z in parts])

    def walk(
        self, states: list[Tensor], truth: Sequence[Sequence[int]] | None, log: Log, done: Callable[[int], None]
    ) -> None:
        """Guess every position of every prompt at once, and search only where one forward pass refutes the guess."""
        padded = pad_sequence(states, batch_first=True)  # (B, T, d)
        lengths = torch.tensor([len(each) for each in states], device=padded.device)
        with self.clock.spent_on("propose"):
            guesses = self.guesses(padded)
        texts = Texts(self.model, guesses, padded, lengths, self.tolerance, self.at_once)
        while len(rows := texts.open):
            before = texts.known.clone()
            with self.clock.spent_on("verify"):
                texts.advance(rows)
            self.enter_run(texts, before, log)
            stuck = texts.stuck
            begins = texts.known[stuck] == 0
            for part in (stuck[begins], stuck[~begins]):  # the first position is another's business
                if len(part):
                    self.enter_search(texts, part, truth, log)
            done(log.count)

    def guesses(self, padded: Tensor) -> Tensor:
        """The likeliest token of every position (B, T)."""
        assert self.foreseen is not None
        count, length = padded.shape[:2]
        rows = max(SCORES // len(self.vocabulary), 1)
        parts = (each[:, :-1].flatten(0, 1).split(rows) for each in (padded.roll(-1, dims=1), self.foreseen))
        scores, rest = None, []
        for z, foreseen in zip(*parts, strict=True):
            scores = self.scores(z, foreseen)
            rest.append(scores.argmax(dim=1))
        self.held = (
            scores.view(count, length - 1, len(self.vocabulary)) if scores is not None and len(rest) == 1 else None
        )
        if self.table is None:
            first = self.scores(padded[:, 0], None).argmax(dim=1)
        else:
            first = self.table.nearest(padded[:, 0], 1)[:, 0]
        return torch.cat([first[:, None], torch.cat(rest).view(count, length - 1)], dim=1) if rest else first[:, None]

    def scores(self, target: Tensor, foreseen: Tensor | None) -> Tensor:
        """How likely each token is behind some states (N, d), by what those before them foresee, (N, V).

        Comparable within a row. First positions have nothing before them.
        """
        probe = self.opening if foreseen is None else self.probe
        if foreseen is None:
            prior = torch.zeros(len(target), len(self.vocabulary)).to(target)
        else:
            prior = self.model.head.lm_head(foreseen)
        if probe is None:
            return prior
        scores: Tensor = probe(target, self.directions)
        return scores.add_(prior, alpha=PRIOR_WEIGHT)

    def enter_run(self, texts: Texts, before: Tensor, log: Log) -> None:
        """Write down what one pass has committed, `before` having been known of each prompt (B,)."""
        step = torch.arange(texts.tokens.shape[1], device=before.device)
        fresh = (step >= before[:, None]) & (step < texts.known[:, None])  # (B, T), in the order of the text
        prompts, positions = fresh.nonzero(as_tuple=True)
        one = torch.ones_like(prompts)
        commit = Commit(texts.tokens[fresh], one.bool(), texts.losses[fresh], torch.zeros_like(one), one)
        trace = Trace(self.vocabulary, len(prompts), None, self.observe)
        log.enter(prompts, texts.states[prompts, positions], commit, trace)

    def enter_search(self, texts: Texts, rows: Tensor, truth: Sequence[Sequence[int]] | None, log: Log) -> None:
        """Search the next position of some prompts (n,), commit what is found, and write it down."""
        where, known = texts.known[rows], None
        if truth is not None:
            ids = [truth[i][t] for i, t in zip(rows.tolist(), where.tolist(), strict=True)]
            known = torch.tensor(ids, device=rows.device)
        trace = Trace(self.vocabulary, len(rows), known, self.observe)
        target = texts.states[rows, where]
        commit = self.recover(Position(texts.behind(rows), target, rows), trace)
        texts.commit(rows, commit.tokens, commit.discrete_loss)
        log.enter(rows, target, commit, trace)

    def recover(self, position: Position, trace: Trace) -> Commit:
        """The token with the smallest discrete loss of all that were tried until one was good enough."""
        target, rows = position.target, position.rows
        limit = allowed_loss(target, self.tolerance)
        steps = torch.zeros_like(rows)
        if position.prefix.length == 0 and self.table is not None:
            with self.clock.spent_on("propose"):
                ranking = self.table.nearest(target, TABLE)
            best = self.tried(position, ranking, rows)
        else:
            best, steps = self.search(position, trace)
        return Commit(best.best, best.best_loss <= limit, best.best_loss, steps, best.tried)

    def search(self, position: Position, trace: Trace) -> tuple[Trials, Tensor]:
        """Proposals, then the tokens around a proxy, then all the rest; with the gradient steps of each prompt."""
        rows, steps = position.rows, torch.zeros_like(position.rows)
        most = min(self.proposals, self.candidates)
        with self.clock.spent_on("propose"):
            scores = self.ranked(position)  # (B, V)
            ranking = scores.topk(min(most, LIKELY), dim=1).indices
        best = self.tried(position, ranking, rows)
        left = self.left(best, rows)
        if len(left) and ranking.shape[1] < most:
            with self.clock.spent_on("propose"):
                scores.scatter_(1, ranking, -torch.inf)  # equal scores may come in any order: what is tried is marked
                more = scores[left].topk(most - ranking.shape[1], dim=1).indices
            self.try_more(position, more, left, best, first=LIKELY)
            scores[left] = scores[left].scatter(1, more, -torch.inf)
            left = self.left(best, left)
        if len(left) and most < self.candidates:
            steps[left] = self.gradient(position, left, best, trace)
            left = self.left(best, left)
        if len(left) and most < self.candidates:
            with self.clock.spent_on("propose"):
                scores.scatter_(1, ranking, -torch.inf)
                rest = scores[left].topk(self.candidates - most, dim=1).indices
            self.try_more(position, rest, left, best, first=self.at_once)
        return best, steps

    def ranked(self, position: Position) -> Tensor:
        """The scores of all tokens at a position (B, V)."""
        before = position.prefix.lengths - 1
        if position.prefix.length > 0 and self.held is not None:
            return self.held[position.prompts, before]
        foreseen = None if position.prefix.length == 0 else self.foreseen
        return self.scores(position.target, None if foreseen is None else foreseen[position.prompts, before])

    def tried(self, position: Position, ranking: Tensor, rows: Tensor, first: int = FIRST_TRIED) -> Trials:
        """Trials of some prompts, (n, K) tokens each, until one is verified, `first` in the first batch."""
        with self.clock.spent_on("verify"):
            target = position.target[rows]
            limit = allowed_loss(target, self.tolerance)
            return try_in_order(position.prefix, target, ranking, limit, rows, self.at_once, first, TRIED_GROWTH)

    def try_more(
        self, position: Position, ranking: Tensor, rows: Tensor, best: Trials, first: int = FIRST_TRIED
    ) -> None:
        """The same, entered into what is known of all prompts."""
        more = self.tried(position, ranking, rows, first=first)
        better = more.best_loss < best.best_loss[rows]
        best.best[rows] = torch.where(better, more.best, best.best[rows])
        best.best_loss[rows] = torch.where(better, more.best_loss, best.best_loss[rows])
        best.first[rows], best.tried[rows] = more.first, best.tried[rows] + more.tried

    def gradient(self, position: Position, rows: Tensor, best: Trials, trace: Trace) -> Tensor:
        """Steps taken (n,), after which the tokens around the proxies were tried."""
        target = position.target[rows]
        with self.clock.spent_on("gradient"):
            start = self.vocabulary.mean.expand_as(target)  # beat zeros and random tokens
            proxies, steps = descend(position.prefix, target, start, rows, self.loop, trace)
        with self.clock.spent_on("propose"):
            ranking = self.vocabulary.nearest(proxies, NEAREST)
        self.try_more(position, ranking, rows, best)
        return steps

    def left(self, best: Trials, rows: Tensor) -> Tensor:
        """Those of the prompts for which nothing was good enough."""
        return rows[best.first[rows] < 0]


def learned(
    model: SplitLanguageModel,
    sequences: Sequence[Sequence[int]],
    folder: Path | None = None,
    noise: float = 0.0,
    lengths: Sequence[int] | None = None,
    prepare: str = "auto",
) -> dict[str, Any]:
    """What a job needs of probes and the table of a model and its cut, by the names that `Hybrid` has for them.

    Args:
        model: as it is released.
        sequences: the attacker's own text.
        folder: where all is kept; None: nowhere. What is there already is taken, however small the job.
        noise: the standard deviation of the noise that the probes have to read through.
        lengths: of the prompts that are to be recovered, by which the preparation is chosen; None: all there is.
        prepare: auto, full (all of the text, whatever the lengths) or none.
    """
    plan = Plan.of(model, sequences, lengths, prepare)
    if not plan.sequences:
        return {}
    if folder is None:
        tell(plan.said(model))
        found = {"probe": train_probe(model, plan.sequences, noise=noise)}
        if plan.table:
            return found | {"table": first_states(model)}
        return found | {"opening": train_opening_probe(model, noise=noise)}
    if len(plan.sequences) < len(sequences) and probe_path(model, sequences, folder, noise=noise).is_file():
        plan = dataclasses.replace(plan, sequences=sequences)
    if plan.opening and table_path(model, folder).is_file():
        plan = dataclasses.replace(plan, table=True, opening=False)
    if not probe_path(model, plan.sequences, folder, noise=noise).is_file():
        tell(plan.said(model))
    found = {"probe": cached_probe(model, plan.sequences, folder, noise=noise)}
    if plan.table:
        return found | {"table": cached_first_states(model, folder)}
    return found | {"opening": cached_opening_probe(model, folder, noise=noise)}


def tell(line: str | None) -> None:
    """Print a line, where there is one."""
    if line is not None:
        print(line, flush=True)


class Table:
    """The states of all tokens at the first position, by distance to a leaked one.

    They share large coordinates, which would drown the differences in ‖S‖² − 2S·h: they are centred first.
    """

    def __init__(self, states: Tensor) -> None:
        self.mean = states.mean(dim=0)
        self.states = states - self.mean  # (V, d)
        self.squares = self.states.square().sum(dim=1)

    def nearest(self, target: Tensor, count: int) -> Tensor:
        """The tokens whose states are nearest, (B, d) → (B, count)."""
        return self.distances(target).topk(min(count, len(self.states)), dim=1, largest=False).indices

    def distances(self, target: Tensor) -> Tensor:
        """The squared distance of each token's state, up to a constant a row, (B, k) → (B, V)."""
        return torch.addmm(self.squares[None], target - self.mean, self.states.T, alpha=-2)
