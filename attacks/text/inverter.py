"""The walk that all policies share: position by position, all prompts at once, one commit a position."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.recovery import Clock, Commit, Recovery, Trace
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.progress import steps_shown

States = Sequence[Tensor] | Tensor


@dataclass
class Position:
    """One position of the B prompts that reach it, and what an attacker knows there.

    Args:
        prefix: the tokens committed so far, with their keys and values.
        target: the leaked states (B, d).
        prompts: which of the given prompts these are (B,).
    """

    prefix: Prefix
    target: Tensor
    prompts: Tensor

    @property
    def rows(self) -> Tensor:
        """The place of each prompt in the prefix (B,)."""
        return torch.arange(len(self.target), device=self.target.device)


class Inverter(ABC):
    """Leaked hidden states of a cut layer → the tokens behind them; a policy says how.

    Args:
        model: the split language model whose cut layer leaked; it is left in evaluation mode, its weights frozen.
        seed: for whatever is random.
        observe: record loss curves, and rank trajectories where the truth is given.
    """

    key: str

    def __init__(self, model: SplitLanguageModel, seed: int = 0, observe: bool = True) -> None:
        self.model = model.eval().requires_grad_(False)
        self.vocabulary = Vocabulary(model.embeddings.weight)
        self.seed, self.observe = seed, observe
        self.clock = Clock(self.vocabulary.embeddings.device)

    def look_over(self, states: list[Tensor]) -> None:  # noqa: B027  # most policies need nothing
        """What a policy learns from all the states before the walk begins."""

    @torch.no_grad()
    def invert(self, states: States, truth: Sequence[Sequence[int]] | None = None) -> Recovery:
        """The texts behind leaked states. Ctrl-C ends the walk with the positions that are done.

        Args:
            states: one tensor (T, d) a prompt, or all of one length as (B, T, d).
            truth: the true tokens, to record rank trajectories with and for nothing else.
        """
        states = checked_states(states, self.model)
        self.clock = Clock(states[0].device)
        log = Log([len(each) for each in states])
        began = self.clock.now()
        try:
            self.look_over(states)
            with steps_shown(self.key, sum(map(len, states))) as done:
                self.walk(states, truth, log, done)
        except KeyboardInterrupt:
            pass
        spent = self.clock.seconds
        seconds = {**spent, "other": self.clock.now() - began - sum(spent.values())}
        return log.recovery(seconds, self.observe, truth is not None)

    @abstractmethod
    def walk(
        self, states: list[Tensor], truth: Sequence[Sequence[int]] | None, log: Log, done: Callable[[int], None]
    ) -> None:
        """Recover all texts, and enter every position of them."""


class StepwiseInverter(Inverter):
    """A policy that commits one token a position, behind one prefix a prompt."""

    @abstractmethod
    def recover(self, position: Position, trace: Trace) -> Commit:
        """The token of each prompt at this position."""

    def walk(
        self, states: list[Tensor], truth: Sequence[Sequence[int]] | None, log: Log, done: Callable[[int], None]
    ) -> None:
        """Recover position after position; prompts that have ended are dropped."""
        device = states[0].device
        lengths = torch.tensor([len(each) for each in states], device=device)
        padded = pad_sequence(states, batch_first=True)  # (B, T, d)
        prompts = torch.arange(len(states), device=device)
        prefix = Prefix(self.model, len(states))
        for t in range(padded.shape[1]):
            target = padded[prompts, t]  # (n, d)
            known = None
            if truth is not None:
                known = torch.tensor([truth[i][t] for i in prompts.tolist()], device=device)
            trace = Trace(self.vocabulary, len(prompts), known, self.observe)
            commit = self.recover(Position(prefix, target, prompts), trace)
            log.enter(prompts, target, commit, trace)
            done(log.count)
            going = (lengths[prompts] > t + 1).nonzero()[:, 0]
            if len(going) == 0:
                return
            if len(going) < len(prompts):
                prefix.keep(going)
            prompts = prompts[going]
            with self.clock.spent_on("verify"):
                prefix.commit(commit.tokens[going])

    def generators(self, position: Position) -> list[torch.Generator]:
        """A source of randomness for each prompt: of the leaked state, hence the same alone and among others."""
        seeds = (zlib.crc32(row.tobytes(), self.seed) for row in position.target.float().cpu().numpy())
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    def random_tokens(self, position: Position) -> Tensor:
        """One token uniformly at random for each prompt, (B,)."""
        drawn = [torch.randint(len(self.vocabulary), (1,), generator=each) for each in self.generators(position)]
        return torch.cat(drawn).to(position.target.device)


class Log:
    """The commits of all prompts, as the walk makes them."""

    def __init__(self, lengths: list[int]) -> None:
        self.count = 0
        self.confidence: dict[int, float] = {}
        self.columns: dict[str, list[list[Any]]] = {
            name: [[] for _ in lengths]
            for name in (
                "tokens",
                "verified",
                "discrete_loss",
                "residual",
                "steps",
                "tried",
                "curves",
                "ranks",
                "probability",
            )
        }

    def enter(self, prompts: Tensor, target: Tensor, commit: Commit, trace: Trace) -> None:
        """Add one position of some prompts."""
        size = target.square().mean(dim=1).clamp_min(1e-30)
        entries = {
            "tokens": commit.tokens.tolist(),
            "verified": commit.verified.tolist(),
            "discrete_loss": commit.discrete_loss.tolist(),
            "residual": (commit.discrete_loss / size).sqrt().tolist(),
            "steps": commit.steps.tolist(),
            "tried": commit.tried.tolist(),
            "curves": trace.curves(),
            "ranks": trace.ranks(),
        }
        if commit.probability is not None:
            entries["probability"] = commit.probability.tolist()
        for name, values in entries.items():
            for prompt, value in zip(prompts.tolist(), values, strict=True):
                self.columns[name][prompt].append(value)
        self.count += len(prompts)

    def recovery(self, seconds: dict[str, float], observed: bool, with_truth: bool) -> Recovery:
        """All that was entered."""
        columns: dict[str, Any] = dict(self.columns)
        if not observed:
            columns["curves"] = None
        if not (observed and with_truth):
            columns["ranks"] = None
        if not any(columns["probability"]):
            columns["probability"] = None
        sure = [self.confidence.get(prompt, 0.0) for prompt in range(len(self.columns["tokens"]))]
        return Recovery(**columns, seconds=seconds, confidence=sure if self.confidence else None)


def checked_states(states: States, model: SplitLanguageModel) -> list[Tensor]:
    """The leaked states of each prompt (T, d), on the model's device and in its precision, if they can be its own."""
    weight, each = model.embeddings.weight, list(states)
    if not each:
        raise UserError("no hidden states were given: there must be at least one prompt")
    for index, state in enumerate(each):
        if state.dim() != 2 or state.shape[1] != model.state_width:
            raise UserError(
                f"the hidden states of prompt {index} must be (positions, {model.state_width}) for this model; "
                f"got {tuple(state.shape)}"
            )
        if len(state) == 0:
            raise UserError(f"prompt {index} is empty: there are no hidden states to recover a text from")
        if len(state) > model.context:
            raise UserError(f"prompt {index} has {len(state)} positions; the model's context ends at {model.context}")
        if not state.isfinite().all():
            raise UserError(f"the hidden states of prompt {index} hold NaN or infinite values")
    return [state.detach().to(weight.device, weight.dtype) for state in each]
