"""Text out of hidden states that leaked, of any language model: a run of ours, one by name, or one in a folder."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.text.channel import Channel, noise_unit, within_noise
from sweetspot.attacks.text.hybrid import learned
from sweetspot.attacks.text.inverter import checked_states
from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.posterior import learned_behind_noise
from sweetspot.attacks.text.probe import state_spreads
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.released import ReleasedEncoder, as_released, release_noise
from sweetspot.datamodules.text import first_tokens, pydoc
from sweetspot.datamodules.tokens import TextTokenizer, blocks
from sweetspot.errors import UserError, first_line
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.evaluations.text import doubts, inverter_of, known_unit, scores_of, text_of
from sweetspot.lightning_modules.causal_lm import load_language_model
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.environment import environment, pick_device
from sweetspot.runs.folder import Run
from sweetspot.runs.tensor_files import check_regular_file, load_tensors

OWN_BLOCK = 63  # tokens in the sequences that the attacker learns from


def invert_leak(config: LeakConfig) -> dict[str, Any]:
    """What was recovered, and how far it can be believed; with the true text known, how much of it is right.

    Hugging Face's `hidden_states[-1]` is after the final norm: leaked states that nothing verifies at `last`, where
    nobody says which layer they are of, are tried at `final` too.
    """
    results = inverted(config)
    is_open = config.states is not None and config.layer is None and results["model"]["cut"] == "last"
    if not is_open or results["verified"] > 0:
        return results
    after_norm = inverted(dataclasses.replace(config, layer="final"))
    if after_norm["verified"] > 0:
        said = "nothing is verified at --layer last; these states are of --layer final, after the final norm"
        return after_norm | {"note": f"{said}, as Hugging Face's hidden_states[-1] is"}
    return results | {"note": "nothing is verified at --layer last, nor at --layer final: name the --layer they are of"}


def inverted(config: LeakConfig) -> dict[str, Any]:
    """What was recovered at the layer that the config names, or at the usual one."""
    device = pick_device(config.device)
    model, tokenizer, source = language_model_of(config)
    model = model.to(device).eval().requires_grad_(False)
    truth = [tokenizer.encode(text) for text in texts_of(config)] if config.states is None else None
    if truth is not None:
        with draws_from(config.seed, device):
            leaked = [released(model, ids, number) for number, ids in enumerate(truth)]
    else:
        leaked = leaked_states(Path(str(config.states)))
    leaked = checked_states(leaked, model)  # before anything is learned about the model
    channel = Channel(config.dtype, config.noise, unit_of(config, model, tokenizer))
    if truth is not None:
        leaked = [channel(z, config.seed + number) for number, z in enumerate(leaked)]
    noise = math.hypot(max(channel.spread(z) for z in leaked), release_noise(model))
    options: dict[str, Any] = {"observe": config.observe}
    if config.policy == "hybrid":
        options |= {"candidates": config.candidates or None}
        options |= learned_for(model, tokenizer, noise, [len(z) for z in leaked], config)
    if config.policy == "single-commit" and config.text_loss == "scaled":
        options["spread"] = state_spreads(model, own_text(tokenizer), config.seed)
    inverter = inverter_of(config.policy, model, config.seed, config.operating_point, **options)
    recovery = inverter.invert(leaked, truth)
    seen = observed(recovery, truth, tokenizer.token, explained=within_noise(noise, model.state_width))
    results: dict[str, Any] = {
        "model": {"name": config.model, "source": source, "cut": model.cut_layer, "tokenizer": tokenizer.name},
        "config": dataclasses.asdict(config),
        "prompts": recovered_texts(recovery, seen["detector"]["first"], tokenizer),
        "verified": recovery.verified_share,
        "noise": noise,
        "seconds_per_token": recovery.seconds_per_token,
        "observed": seen,
        "environment": environment(device, config.seed, sum(recovery.seconds.values())),
    }
    if truth is not None:
        scores = scores_of(recovery.tokens, truth, tokenizer)
        results |= {"truth": [tokenizer.decode(ids) for ids in truth]}
        results |= {name: scores[name]["mean"] for name in ("em", "token_accuracy", "similarity")}
    return results


def learned_for(
    model: SplitLanguageModel, tokenizer: TextTokenizer, noise: float, lengths: list[int], config: LeakConfig
) -> dict[str, Any]:
    """What hybrid learns from text that any attacker has, for exact states of these lengths or for noisy ones."""
    own, cache = own_text(tokenizer), Path(config.cache)
    if noise == 0:
        return learned(model, own, cache, lengths=lengths, prepare=config.prepare)
    starts = first_tokens(pydoc().train, tokenizer, 1)
    known = learned_behind_noise(model, own, starts, noise, cache, lengths, config.prepare)
    return {"noise": noise, "beam": config.beam, **known}


def unit_of(config: LeakConfig, model: SplitLanguageModel, tokenizer: TextTokenizer) -> float:
    """What --noise is measured in: a run's own unit, which `evaluate.py` uses too, or another model's on English."""
    run = Run(Path(config.model))
    if config.noise == 0:
        return 1.0
    if not run.checkpoint.is_file():
        return noise_unit(model, own_text(tokenizer))
    results = run.read_results()
    return known_unit(results) or noise_unit(model, text_of(results, tokenizer).train[0].tolist())


def own_text(tokenizer: TextTokenizer) -> list[list[int]]:
    """Token sequences that any attacker has to learn from."""
    return blocks(pydoc().train, tokenizer, OWN_BLOCK).tolist()


def recovered_texts(recovery: Recovery, suspicious: list[int | None], tokenizer: TextTokenizer) -> list[dict[str, Any]]:
    """Each prompt's text and tokens, and what speaks for them."""
    columns = zip(recovery.tokens, recovery.verified, recovery.discrete_loss, suspicious, doubts(recovery), strict=True)
    return [
        {
            "text": tokenizer.decode(ids),
            "tokens": ids,
            "verified": verified,
            "discrete_loss": losses,
            "suspicious_from": first,
            **doubt,
            **({"words": [tokenizer.token(token) for token in ids]} if doubt else {}),
        }
        for ids, verified, losses, first, doubt in columns
    ]


def language_model_of(config: LeakConfig) -> tuple[SplitLanguageModel, TextTokenizer, str]:
    """The split model as an attacker sees it, its tokenizer, and its origin: a run of ours, or a name or folder."""
    run = Run(Path(config.model))
    if not run.checkpoint.is_file():
        model, tokenizer = load_language_model(config.model)
        return SplitLanguageModel(model, config.layer or "last"), tokenizer, str(model.name_or_path)
    module = load_module(run.checkpoint)
    network = module.network
    if not isinstance(network, SplitLanguageModel):
        raise UserError(f"{run.folder} is a run on images or vectors; evaluate.py attacks it")
    if config.layer is not None and config.layer != network.cut_layer:
        raise UserError(
            f"{run.folder} was cut after {network.cut_layer}, and its defence sits there; leave --layer out"
        )
    tokenizer = TextTokenizer.from_json(module.hparams["language"]["tokenizer"])
    return as_released(network, module.defence.release, module.defence.bottleneck), tokenizer, run.name


def texts_of(config: LeakConfig) -> list[str]:
    """The prompts, none of them empty."""
    texts = config.text
    if config.prompts is not None:
        check_regular_file("--prompts", Path(config.prompts))
        try:
            texts = [line for line in Path(config.prompts).read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--prompts {config.prompts} cannot be read ({first_line(error)})") from error
    if not texts:
        raise UserError('there is nothing to recover: give --text "…", --prompts FILE or --states FILE')
    if not all(texts):
        raise UserError("a prompt is empty: there are no hidden states to recover it from")
    return texts


@torch.no_grad()
def released(model: SplitLanguageModel, ids: list[int], number: int) -> Tensor:
    """The states (T, d) that leave the client for one prompt."""
    if len(ids) > model.context:
        raise UserError(f"prompt {number} has {len(ids)} tokens; the model's context ends at {model.context}")
    tokens = torch.tensor([ids], device=model.embeddings.weight.device)
    z: Tensor = model.encoder.drawn(tokens) if isinstance(model.encoder, ReleasedEncoder) else model.encoder(tokens)
    return z[0]


def leaked_states(path: Path) -> list[Tensor]:
    """The prompts' states (T, d) in a file; tensors only, nothing that runs."""
    loaded = load_tensors("--states", path)
    if isinstance(loaded, dict):
        loaded = loaded.get("states") if len(loaded) != 1 else next(iter(loaded.values()))
    states = list(loaded) if isinstance(loaded, list | tuple) or getattr(loaded, "ndim", 0) == 3 else [loaded]
    if not states or not all(isinstance(each, Tensor) and each.ndim == 2 and not each.is_complex() for each in states):
        raise UserError(
            f"--states {path} must hold a real tensor (T, d) or (B, T, d), alone or called states, or a list of (T, d)"
        )
    return [state.float() for state in states]
