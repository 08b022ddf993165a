"""What the cells need besides runs: attacks on gradients and on hidden states, made by the ordinary functions."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, SingleCommit
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.datamodules.text import first_tokens, load_text, sentences
from sweetspot.datamodules.tokens import TextTokenizer
from sweetspot.evaluations.gradient_config import GradientConfig
from sweetspot.evaluations.gradients import invert_gradient
from sweetspot.evaluations.leak import language_model_of, released
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.evaluations.text import scores_of, whole
from sweetspot.files import replacing
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.reproductions.needs import Computed, Shelf
from sweetspot.runs.environment import environment, pick_device

Settings = Mapping[str, Any]
LOOP = tuple(each.name for each in dataclasses.fields(InnerLoop))


def compute(need: Computed, shelf: Shelf, data_root: str | None, device: str) -> None:
    """Make the result of a computation and keep it."""
    began = time.perf_counter()
    folder = shelf.folder(need.run) if need.run else None
    result = KINDS[need.kind](need.settings, folder, data_root, device)
    kept = {"kind": need.kind, "settings": dict(need.settings), "seconds": time.perf_counter() - began}
    file = shelf.file(need)
    file.parent.mkdir(parents=True, exist_ok=True)
    written = json.dumps({**kept, "result": result}, ensure_ascii=False, allow_nan=False)
    with replacing(file) as temporary:
        temporary.write_text(written + "\n", encoding="utf-8")


def gradient(settings: Settings, run: Path | None, data_root: str | None, device: str) -> dict[str, Any]:
    """A batch out of a gradient, as `invert.py gradient` gives it."""
    return invert_gradient(GradientConfig(**settings, data_root=data_root, device=device))


def text(settings: Settings, run: Path | None, data_root: str | None, device: str) -> dict[str, Any]:
    """Prompts out of the hidden states of a language model's last layer, and what was observed on the way."""
    documents = load_text(settings["corpus"]).test  # before a model is read, which takes longer
    chosen = LeakConfig(model=str(settings["model"] if run is None else run), layer="last" if run is None else None)
    model, tokenizer, source = language_model_of(chosen)
    model = model.to(pick_device(device)).eval().requires_grad_(False)
    truth = prompts_of(settings, documents, tokenizer)
    leaked = [released(model, ids, number) for number, ids in enumerate(truth)]
    recovery = whole(inverter_of(settings, model).invert(leaked, truth), truth)
    scores = scores_of(recovery.tokens, truth, tokenizer)
    return {
        **{name: scores[name]["mean"] for name in ("em", "token_accuracy", "similarity")},
        "verified": recovery.verified_share,
        "seconds_per_token": recovery.seconds_per_token,
        "observed": observed(recovery, truth, tokenizer.token),
        "model": {"name": settings["model"], "source": source, "cut": model.cut_layer},
        "settings": dict(settings),
        "prompts": len(truth),
        "environment": environment(leaked[0].device, settings["seed"], sum(recovery.seconds.values())),
    }


def prompts_of(settings: Settings, documents: Sequence[str], tokenizer: TextTokenizer) -> list[list[int]]:
    """The first tokens of held-out documents; of Wikipedia, as in the paper, of sentences of 25 to 70 characters.

    A text that has fewer of them gives those that it has: the paper's have enough.
    """
    count, length = settings["prompts"], settings["length"]
    if settings["corpus"] == "wikipedia":
        return [ids[:length] for ids in tokenizer.encode_all(sentences(documents)[:count])]
    found: list[list[int]] = first_tokens(documents, tokenizer, length)[:count].tolist()
    return found


def inverter_of(settings: Settings, model: SplitLanguageModel) -> Inverter:
    """The policy that some settings ask for."""
    if settings["policy"] == "sipit":
        return Sipit(model, seed=settings["seed"])
    loop = InnerLoop(**{name: settings[name] for name in LOOP if name in settings})
    outer = {name: settings[name] for name in ("candidates", "start", "metric", "seed") if name in settings}
    return SingleCommit(model, loop, **outer)


def operating_points(settings: Settings, run: Path | None, data_root: str | None, device: str) -> dict[str, Any]:
    """What the operating points of single commit mean here."""
    return {
        name: {"steps": each["loop"].steps, "candidates": each["candidates"]} for name, each in OPERATING_POINTS.items()
    }


KINDS: dict[str, Callable[[Settings, Path | None, str | None, str], dict[str, Any]]] = {
    "gradient": gradient,
    "text": text,
    "operating-points": operating_points,
}
