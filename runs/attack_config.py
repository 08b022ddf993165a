"""AttackConfig: how a run, a model or a leak is attacked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sweetspot.errors import UserError, check_one_of
from sweetspot.runs.choices import BUDGETS, DTYPES, LEAST_DATA, OPERATING_POINTS, POLICIES, TEXT_LOSSES
from sweetspot.runs.fields import check_types, not_identity


@dataclass
class AttackConfig:
    """How a run is attacked. Which attacks there are is known to `evaluations.chosen`, which also checks their names.

    Args:
        attacks: standard, the suite with a version; for images whitebox (all its recipes), decoder (the adaptive
            one), refined and positions, for text text; one alone, such as decoder/paper or text/sipit; or your own as
            path/to/file.py:Class. none attacks nothing. What the label alone gives away (prototype, label) and who has
            the true input in a gallery are always beside them.
        recipe: paper, no-data (an attacker without any inputs of its own) or adaptive, or several: the recipes of all
            attacks that are named without one. Not given: those that --attacks says.
        samples: how many test images or vectors are attacked.
        budget: what the adaptive attacker spends: fast, normal or thorough.
        attack_seed: what the attacks draw follows from it; default: the run's own seed.
        policy: how text is recovered: hybrid, single-commit or sipit, or several of them.
        operating_point: of single-commit: fast, baseline or high-accuracy.
        beam: how many prefixes of a prompt hybrid keeps where the states have noise; 1 is greedy.
        prior: a text run with the same tokenizer, whose language model tells hybrid what to expect behind noise: a
            defended one predicts worse than what an attacker can train. Not given: the attacked model's own.
        text_loss: of single-commit: paper, the plain MSE, or scaled, each coordinate by its spread over the training
            text: for models whose states have a few huge coordinates.
        prompts: how many prompts of 10 tokens are attacked, the starts of test documents.
        observe: whether loss curves and rank trajectories of text are recorded; false saves a little time.
        draws: of a random release, how many times every input is released and attacked; figures are means over them.
        queries: how many answers for the same input the attacker averages, or several such numbers, each tried beside
            one answer.
        attacker_data: how many inputs of its own the attacker has, several such numbers or all, each tried beside all:
            where more still help, a figure is a lower bound.
        channels: what may happen to what is released on its way, each tried beside the exact one: fp16, bf16 or int8,
            or a number, Gaussian noise as a fraction of the root mean square of what is released (of text without
            first positions); fp32 alone for none. Not given: for text fp16 int8 0.1 0.3 1, for images none.
        device: where the attacks run: auto, cpu, cuda, cuda:1, …
        attack_options: of the attacks, by name; what is not given has its default.
    """

    attacks: list[str] = not_identity(["standard"])
    recipe: list[str] = not_identity([])
    samples: int = not_identity(100)
    budget: str = not_identity("normal")
    attack_seed: int | None = not_identity(None)
    policy: list[str] = not_identity(["hybrid"])
    operating_point: str = not_identity("baseline")
    beam: int = not_identity(8)
    prior: str | None = not_identity(None)
    text_loss: str = not_identity("paper")
    prompts: int = not_identity(100)
    observe: bool = not_identity(True)
    draws: int = not_identity(1)
    queries: list[int] = not_identity([1])
    attacker_data: list[str] = not_identity(["all"])
    channels: list[str] = not_identity([])
    device: str = not_identity("auto")
    attack_options: dict[str, Any] = not_identity({})

    def __post_init__(self) -> None:
        check_types(self)
        check_one_of("--budget", self.budget, BUDGETS)
        counts = (("samples", self.samples), ("prompts", self.prompts), ("draws", self.draws), ("beam", self.beam))
        for flag, count in (*counts, *(("queries", each) for each in self.queries)):
            if count < 1:
                raise UserError(f"--{flag} must be at least 1; got {count}")
        for each in self.attacker_data:
            if each != "all" and not (each.isdecimal() and int(each) >= LEAST_DATA):
                raise UserError(f"--attacker-data must be all, or whole numbers of at least {LEAST_DATA}; got {each}")
        if self.attack_seed is not None and not 0 <= self.attack_seed < 2**32:
            raise UserError(f"--attack-seed must be at least 0 and below 2³²; got {self.attack_seed}")
        self.check_text()

    def check_text(self) -> None:
        """Refuse what no attack on text can mean."""
        if not self.policy or any(name not in POLICIES for name in self.policy):
            raise UserError(f"--policy must be of {', '.join(POLICIES)}; got {' '.join(self.policy) or 'none'}")
        check_one_of("--operating-point", self.operating_point, OPERATING_POINTS)
        check_one_of("--text-loss", self.text_loss, TEXT_LOSSES)
        for name in self.channels:
            if name not in DTYPES and not is_level(name):
                raise UserError(f"--channels must be of {', '.join(DTYPES)}, or positive noise levels; got {name}")

    def text_policies(self) -> list[str]:
        """The policies that are asked for.

        Example:
            >>> AttackConfig().text_policies(), AttackConfig(attacks=["text/sipit"]).text_policies()
            (['hybrid'], ['sipit'])
        """
        asked = self.policy if {"text", "standard"} & set(self.attacks) else []
        return [policy for policy in POLICIES if policy in asked or f"text/{policy}" in self.attacks]


def is_level(text: str) -> bool:
    """Whether a text is a positive number, as a noise level must be."""
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
