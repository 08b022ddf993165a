"""Recovered text for the page: token by token with its marks, the losses on the way, the detector, the channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sweetspot.metrics.summary import BLIND
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.plots import loss_lines
from sweetspot.reports.records import attack_records
from sweetspot.runs.record import is_number

MOST = 12  # prompts of a run that are shown; their figures are over all of them
LONGEST = 400  # tokens of a prompt that are shown
KINDS = {"right verified": "right and verified", "right": "right, not verified", "wrong": "wrong"}


@dataclass(frozen=True)
class Prompt:
    """A prompt: the truth, and each recovered token with what is known about it.

    Args:
        truth: the true text.
        tokens: each with a key of KINDS, and behind noise its probability, else None.
        more: how many are not shown.
        confidence: behind noise, how probable it is that all of them are right.
    """

    truth: str
    tokens: tuple[tuple[str, str, float | None], ...]
    more: int
    confidence: float | None = None


@dataclass(frozen=True)
class TextAttack:
    """What one policy recovered of a run.

    Args:
        key: the attack.
        prompts: the first few.
        of: how many there are.
        losses: the cumulative discrete loss as a plot; empty where it was not observed.
        detector: its figures by name, as they are written.
        channels: rows of the table of channels.
    """

    key: str
    prompts: tuple[Prompt, ...]
    of: int
    losses: Markup
    detector: tuple[tuple[str, str], ...]
    channels: tuple[tuple[str, ...], ...]

    @property
    def has_doubts(self) -> bool:
        """Whether tokens have probabilities."""
        return any(sure is not None for prompt in self.prompts for _, _, sure in prompt.tokens)


CHANNEL_COLUMNS = (
    "channel", "exact match", "tokens right", "bayes", "similarity", "leak", "perplexity", "accuracy",
    "detector AUROC", "calibration error",
)  # fmt: skip


def text_attacks(run: FoundRun, most: int = MOST, channel: str = "") -> list[TextAttack]:
    """Every policy that was tried on a run, or behind a channel, by name, with its first prompts."""
    found = []
    for key, record in sorted(attack_records(run.results, channel).items()):
        if key == BLIND:  # one guess for all, which its figures say enough about
            continue
        prompts = [prompt_of(each) for each in record.get("recovered", [])[:most]]
        seen = record.get("observed") or {}
        losses = seen.get("cumulative_loss") or []
        right = [all(each.get("right", [])) for each in record.get("recovered", [])]
        right += [True] * (len(losses) - len(right))
        found.append(
            TextAttack(
                key, tuple(prompts), len(record.get("recovered", [])), loss_lines(losses, right),
                tuple(detector_of(seen.get("detector") or record.get("detector") or {})),
                tuple(channels_of(run.results, record)),
            )
        )  # fmt: skip
    return found


def prompt_of(recovered: dict[str, Any]) -> Prompt:
    """One prompt with its marks."""
    tokens = recovered.get("tokens", [])
    verified, right = (padded(recovered.get(name, []), len(tokens)) for name in ("verified", "right"))
    known = recovered.get("probability") or []
    probable = [*(each if is_number(each) else None for each in known), *[None] * (len(tokens) - len(known))]
    marked = []
    for token, sure, correct, probability in zip(tokens[:LONGEST], verified, right, probable, strict=False):
        marked.append((str(token), "wrong" if not correct else "right verified" if sure else "right", probability))
    said = recovered.get("confidence")
    confidence = float(said) if said is not None and is_number(said) else None
    return Prompt(str(recovered.get("truth", "")), tuple(marked), max(len(tokens) - LONGEST, 0), confidence)


def padded(flags: Sequence[bool], length: int) -> list[bool]:
    """Flags for every token; what is not said is not so."""
    return [*flags, *[False] * (length - len(flags))]


def detector_of(detector: dict[str, Any]) -> list[tuple[str, str]]:
    """How well the attacker tells, without the truth, which prompts came back wrong."""
    names = {
        "precision": "precision",
        "recall": "recall",
        "auroc": "AUROC",
        "token_auroc": "AUROC of tokens",
        "located": "first wrong token located",
    }
    found = [(said, detector.get(name)) for name, said in names.items()]
    rows = [(said, f"{value:.2f}") for said, value in found if isinstance(value, int | float)]
    errors = detector.get("calibration") or {}
    for name in ("token", "prompt"):
        if is_number(errors.get(name)):
            floor = (detector.get("calibration_by_chance") or {}).get(name)
            by_chance = f" ({floor:.3f} if it were perfect)" if is_number(floor) else ""
            rows.append((f"calibration error of a {name}'s probability", f"{errors[name]:.3f}{by_chance}"))
    if flagged := detector.get("flagged"):
        rows.insert(0, ("prompts flagged", f"{sum(map(bool, flagged))} of {len(flagged)}"))
    return rows


def channels_of(results: dict[str, Any], record: dict[str, Any]) -> list[tuple[str, ...]]:
    """Exact states and each channel: what comes back, and what the model is still good for."""
    detector = (record.get("observed") or {}).get("detector") or {}
    exact = {**record, **results["utility"], "detector": detector}
    rows = {"exact states": exact, **record.get("channels", {})}
    return [(name, *channel_cells(row)) for name, row in rows.items()] if len(rows) > 1 else []


def channel_cells(row: dict[str, Any]) -> list[str]:
    """The figures of one channel; a dash for what was not measured."""
    detector = row.get("detector") or {}
    auroc, error = detector.get("auroc"), (detector.get("calibration") or {}).get("token")
    best, leak = (row.get("bayes") or {}).get("token_accuracy"), (row.get("leak") or {}).get("similarity")
    return [
        *(f"{100 * row[name]['mean']:.1f} %" if name in row else "–" for name in ("em", "token_accuracy")),
        f"{100 * best:.1f} %" if isinstance(best, int | float) else "–",
        f"{row['similarity']['mean']:.3f}" if "similarity" in row else "–",
        f"{leak['mean']:.2f}" if leak else "–",
        f"{row['perplexity']:.1f}" if isinstance(row.get("perplexity"), int | float) else "–",
        f"{100 * row['accuracy']:.1f} %" if isinstance(row.get("accuracy"), int | float) else "–",
        f"{auroc:.2f}" if isinstance(auroc, int | float) else "–",
        f"{error:.3f}" if isinstance(error, int | float) else "–",
    ]
