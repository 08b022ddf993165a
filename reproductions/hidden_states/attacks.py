"""Single commit and SIPIT on the last layer, as the paper runs them; settings that it lost are our defaults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.reproductions.base import Asked, Reproduction
from sweetspot.reproductions.needs import Computed, Shelf, TrainedRun, experiment_flags
from sweetspot.reproductions.verdict import Cell, Figure, Record, Within

TEXTS = ("c4", "wikipedia", "pydoc")
SEED = 42  # the paper's
LENGTH = 10  # tokens of a prompt
POINTS = {"fast": (600, 100), "baseline": (1000, 2000), "high-accuracy": (2000, 10_000)}  # steps, candidates
EM, SIMILARITY = Within(5.0), Within(0.03)  # per cent: one standard error of 67 % over 100 prompts
SECONDS = Within(0.25, relative=True)  # of another machine, and of prompts that run all at once
QUICK_PROMPTS, QUICK_STEPS = 20, 10  # a tenth of the steps, which gpt2-tiny needs


class HiddenStates(Reproduction):
    """A table or figure about text out of hidden states: of GPT-2 small, or of a stand-in for it."""

    takes = ("dataset", "model")
    quick_note = f"gpt2-tiny trained on pydoc, {QUICK_PROMPTS} prompts, a tenth of the steps and candidates"

    def check(self, asked: Asked) -> None:
        super().check(asked)
        if asked.dataset is not None and asked.dataset not in TEXTS and not Path(asked.dataset).exists():
            raise UserError(f"--dataset must be one of {', '.join(TEXTS)}, or a file of text; got {asked.dataset}")

    def stand_in(self, asked: Asked) -> str:
        said = [super().stand_in(asked)] if asked.quick else []
        said += [f"{asked.model} in place of gpt2"] if asked.model not in (None, "gpt2") else []
        said += [f"{asked.dataset} as the text"] if asked.dataset is not None else []
        return ", ".join(said)


def tiny_model(quick: bool) -> TrainedRun:
    """A small GPT-2 that was trained on the embedded text: random weights would say nothing of difficulty."""
    flags = {**experiment_flags("gpt2_tiny"), "defence": "none", "lam": 0.0, "cut": "last"}
    return TrainedRun(flags | ({"epochs": 3} if quick else {}))


def inversion(asked: Asked, corpus: str, prompts: int, policy: str = "single-commit", **changed: Any) -> Computed:
    """One attack on so many prompts; `changed` are settings of single commit that differ from the baseline."""
    model = asked.model or ("gpt2-tiny" if asked.quick else "gpt2")
    corpus = asked.dataset or ("pydoc" if asked.quick else corpus)
    common: dict[str, Any] = {"model": model, "corpus": corpus, "length": LENGTH, "policy": policy, "seed": SEED}
    settings = {**common, "prompts": min(prompts, QUICK_PROMPTS) if asked.quick else prompts}
    if policy == "single-commit":
        steps, candidates = POINTS[changed.pop("point", "baseline")]
        settings |= {"steps": steps, "candidates": candidates, "start": "zeros", **changed}
        if asked.quick:
            settings |= {name: max(settings[name] // QUICK_STEPS, 1) for name in ("steps", "candidates")}
    return Computed("text", settings, tiny_model(asked.quick) if model == "gpt2-tiny" else None)


def percent(records: Sequence[Record]) -> Figure:
    """EM in per cent."""
    return Figure(100 * records[0]["em"])


def similarity(records: Sequence[Record]) -> Figure:
    return Figure(records[0]["similarity"])


def seconds(records: Sequence[Record]) -> Figure:
    """Of a token."""
    return Figure(records[0]["seconds_per_token"]["total"])


def accuracy_cells(row: str, need: Computed, em: float, alike: float, against: str | None) -> list[Cell]:
    """EM and similarity of one row of Tables 2 and 4."""
    return [
        Cell(row, "EM %", [(need,)], percent, Figure(em), EM, (against, "EM %") if against else None, digits=1),
        Cell(row, "similarity", [(need,)], similarity, Figure(alike), SIMILARITY,
             (against, "similarity") if against else None, digits=3),
    ]  # fmt: skip


def time_cell(row: str, need: Computed, paper: float, against: str | None) -> Cell:
    """Seconds a token of one row of Tables 3 and 5."""
    order = (against, "s/token") if against else None
    return Cell(row, "s/token", [(need,)], seconds, Figure(paper), SECONDS, order, digits=3)


def claim(row: str, needs: Sequence[Computed], holds: Callable[[Sequence[Record]], float | None]) -> Cell:
    """A statement about some attacks, by the share of comparisons in which it holds."""

    def read(records: Sequence[Record]) -> Figure | None:
        found = holds(records)
        return None if found is None else Figure(float(found))

    return Cell(row, "", [tuple(needs)], read)


def gains(measure: Callable[[Sequence[Record]], Figure]) -> Callable[[Sequence[Record]], float]:
    """The share of steps, from each attack to the next, in which something does not fall, and rises over all."""

    def held(records: Sequence[Record]) -> float:
        values = [measure([record]).mean for record in records]
        steps = [after >= before for before, after in itertools.pairwise(values)]
        return sum(steps) / len(steps) * (values[-1] > values[0])

    return held


def ablation(name: str, needs: Mapping[Any, Computed], shelf: Shelf, path: Path) -> bool:
    """Draw EM and similarity against the values of one setting; whether any was there."""
    found = {value: shelf.find(need) for value, need in needs.items()}
    rows = [{"value": value, **record} for value, record in found.items() if record is not None]
    if not rows:
        return False
    from sweetspot.reports.text_figures import ablations_figure

    ablations_figure({name: rows}, path)
    return True


def observation(kind: str, need: Computed, shelf: Shelf, path: Path) -> bool:
    """Draw what was observed of one attack, by the name of its key; whether it was."""
    record = shelf.find(need)
    if record is None or kind not in record["observed"]:
        return False
    from sweetspot.reports import text_figures

    figures = {
        "ranks": text_figures.ranks_figure,
        "curves": text_figures.curves_figure,
        "cumulative_loss": text_figures.cumulative_figure,
        "failures": text_figures.failures_figure,
    }
    figures[kind](record["observed"], path)
    return True
