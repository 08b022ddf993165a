"""What comes back from the hidden states of a text run: by each policy, and through channels that blur the states."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.text.channel import Channel, noise_unit, within_noise
from sweetspot.attacks.text.diagnostics import one_step_margin
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.probe import state_spreads
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.released import as_released
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, SingleCommit
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.datamodules.language import TextDataModule
from sweetspot.datamodules.text import first_tokens, load_text
from sweetspot.datamodules.tokens import TextTokenizer
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import measure_utility
from sweetspot.metrics.summary import scored, worst_case
from sweetspot.metrics.text import exact_match, similarity, token_accuracy
from sweetspot.reports.tables import attack_line
from sweetspot.reports.text_figures import observations_figure
from sweetspot.reports.text_samples import write_samples
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.config import DTYPES, TEXT_CHANNELS, AttackConfig
from sweetspot.runs.environment import environment, pick_device, reproducible
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import check_same_data
from sweetspot.runs.record import complete

FORMAT = 1  # raised when an attack of the same settings begins to mean something else: old results are then redone
CHANNEL_FORMAT = 2  # the same for what came through a channel; since 2 noise has one unit for attacker and server
NEEDED = ("available", "channels", "observed", "margin", "verified", "seconds_per_token")  # of a finished attack
LENGTH = 10  # tokens in a prompt, as in the paper
MARGIN_PROMPTS = 20  # of the prompts, for the one-step margin
MARGIN_TOKENS = 8192  # a larger vocabulary's margin is taken over the tokens whose embeddings are nearest
NEAREST_TOKENS = 1024  # so many of them
SHOWN = 5  # prompts whose text is kept of every channel


@dataclasses.dataclass
class TextCase:
    """A text run under attack: its model and tokenizer, what its client sends, and text of its own kind.

    Args:
        module: the split language model and its defence.
        tokenizer: the model's own.
        datamodule: the run's text.
        count: how many prompts are attacked.
        cache: where what hybrid learns is kept.
        known_unit: the unit of noise, where the run's record has it.
    """

    module: SplitModule
    tokenizer: TextTokenizer
    datamodule: TextDataModule
    count: int
    cache: Path
    known_unit: float | None = None

    @classmethod
    def of(cls, run: Run, results: dict[str, Any], count: int, dataset: str | None, device: torch.device) -> TextCase:
        """The case in a run's folder."""
        module = load_module(run.checkpoint).to(device)
        tokenizer = TextTokenizer.from_json(module.hparams["language"]["tokenizer"])
        datamodule = text_of(results, tokenizer, dataset)
        return cls(module, tokenizer, datamodule, count, run.folder, known_unit(results))

    @cached_property
    def model(self) -> SplitLanguageModel:
        """The split language model as an attacker sees it, with the states that its defence releases."""
        network = self.module.network
        assert isinstance(network, SplitLanguageModel)
        return as_released(network, self.module.defence.release, self.module.defence.bottleneck)

    @cached_property
    def prompts(self) -> Tensor:
        """All prompts that there are (N, T): how test documents start."""
        return first_tokens(self.datamodule.corpus.test, self.tokenizer, min(LENGTH, self.model.context))

    @property
    def truth(self) -> Tensor:
        """The attacked prompts (B, T)."""
        return self.prompts[: self.count]

    @cached_property
    def learned(self) -> dict[str, Any]:
        """What hybrid learns from the run's training text: once, for exact states and for all channels."""
        return learned(self.model, self.datamodule.train[0].tolist(), self.cache)

    @cached_property
    def states(self) -> Tensor:
        """What leaves the client for them (B, T, d)."""
        with torch.no_grad(), draws_from(self.module.hparams["seed"], self.module.device):
            return self.module.encode(self.truth.to(self.module.device))

    @property
    def noise(self) -> float:
        """The standard deviation of what the release adds to an entry at random; an attacker knows it."""
        return self.module.defence.release.noise

    @cached_property
    def unit(self) -> float:
        """What noise is measured in, for prompts and for the server's batches alike."""
        return self.known_unit or noise_unit(self.model, self.datamodule.train[0].tolist())

    @cached_property
    def margin(self) -> dict[str, Any]:
        """How far the cut layer keeps the true token's state from the nearest other's, and the same over its size."""
        tokens = None if self.model.vocabulary <= MARGIN_TOKENS else NEAREST_TOKENS
        margin = one_step_margin(self.model, self.truth[:MARGIN_PROMPTS].tolist(), tokens)
        return {
            "min": margin.min,
            "median": margin.median,
            "relative": {"min": margin.relative.min().item(), "median": margin.relative.median().item()},
            "positions": len(margin.distance),
            "tokens": tokens or self.model.vocabulary,
        }


def text_of(results: dict[str, Any], tokenizer: TextTokenizer, dataset: str | None = None) -> TextDataModule:
    """The text that a run was trained on, from where its record says or from `dataset`; other text is refused."""
    config = results["config"]
    options = (config[name] for name in ("length", "batch_size", "seed", "limit_train", "limit_test"))
    datamodule = TextDataModule(load_text(dataset or config["dataset"]), tokenizer, *options)
    check_same_data(results, datamodule)
    return datamodule


def known_unit(results: dict[str, Any]) -> float | None:
    """The unit of noise in a run's record, None where nothing was sent through noise yet."""
    unit = results["attacks"].get("text/hybrid", {}).get("noise_unit")
    return unit if isinstance(unit, float) and 0 < unit < math.inf else None


def evaluate_text(run: Run, config: AttackConfig, dataset: str | None = None) -> dict[str, Any]:
    """Attack one run on text; its results, with `attacks` and `worst_case` filled. What is finished is not repeated.

    Args:
        run: the run, held by the caller.
        config: which policies, how many prompts, which channels.
        dataset: where the run's text lies here, if not where it was.
    """
    results, asked = asked_of(run, config)
    if all_done(run, results, asked, config):
        return results
    device = pick_device(config.device)
    reproducible()
    case = TextCase.of(run, results, config.prompts, dataset, device)
    for policy, settings in asked:
        if not finished(results, policy, settings, config, with_channels=False):
            results["attacks"][f"text/{policy}"] = attacked(case, policy, settings, config.observe)
            enter(run, results)
            print(attack_line(f"text/{policy}", results["attacks"][f"text/{policy}"]), flush=True)
        if policy == "hybrid":
            for name in missing_channels(results, config):
                channel = Channel.named(name, case.unit)
                record = through(case, channel, settings["seed"])
                results["attacks"]["text/hybrid"]["channels"][channel.name] = record
                results["attacks"]["text/hybrid"]["noise_unit"] = case.unit
                enter(run, results)
                print(attack_line(f"text/hybrid, {Channel.named(name).name}", record), flush=True)
        observations_figure(results["attacks"][f"text/{policy}"]["observed"], figure_of(run, policy))
    return results


def text_attacked(run: Run, config: AttackConfig) -> bool:
    """Whether a run has already been through everything that is asked for."""
    results, asked = asked_of(run, config)
    return all_done(run, results, asked, config)


def all_done(
    run: Run, results: dict[str, Any], asked: Sequence[tuple[str, dict[str, Any]]], config: AttackConfig
) -> bool:
    """Whether every policy that is asked for is finished, and drawn: a run may have been killed in between."""
    return all(
        finished(results, policy, settings, config) and figure_of(run, policy).is_file() for policy, settings in asked
    )


def figure_of(run: Run, policy: str) -> Path:
    """Where the figure of a policy lies."""
    return run.folder / f"text-{policy}.png"


def asked_of(run: Run, config: AttackConfig) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """The run's results, without attacks that meant something else, and the policies asked for with their settings."""
    results = run.read_results()
    formats = dict.fromkeys(results["attacks"], FORMAT)
    results["attacks"] = complete(results["attacks"], formats, *NEEDED)
    for each in results["attacks"].values():
        behind = each.get("channels", {})
        each["channels"] = {name: behind[name] for name in behind if up_to_date(name, behind[name])}
    seed = results["config"]["seed"] if config.attack_seed is None else config.attack_seed
    return results, [(policy, settings_of(policy, config, seed)) for policy in config.text_policies()]


def up_to_date(channel: str, record: dict[str, Any]) -> bool:
    """Whether a channel's record means what it would today: without noise, one of before the unit still does."""
    return bool(record.get("format", CHANNEL_FORMAT if channel in DTYPES else 1) == CHANNEL_FORMAT)


def enter(run: Run, results: dict[str, Any]) -> None:
    """Write down what is known so far."""
    results["worst_case"] = worst_case(results["attacks"])
    write_samples(results, run.folder / "text-recovered.txt")
    run.write_results(results)


def settings_of(policy: str, config: AttackConfig, seed: int) -> dict[str, Any]:
    """What a policy's result depends on, as plain data: a finished attack is known by it."""
    point = {"operating_point": config.operating_point} if policy == "single-commit" else {}
    if policy == "single-commit" and config.text_loss != "paper":
        point["text_loss"] = config.text_loss
    return {"policy": policy, "length": LENGTH, "seed": seed, **point}


def finished(
    results: dict[str, Any], policy: str, settings: dict[str, Any], config: AttackConfig, with_channels: bool = True
) -> bool:
    """Whether the results have this attack already, on as many prompts, and through all channels that are asked for."""
    done = results["attacks"].get(f"text/{policy}")
    if done is None or done["settings"] != settings or done["samples"] < min(config.prompts, done["available"]):
        return False
    return not (with_channels and policy == "hybrid" and missing_channels(results, config))


def missing_channels(results: dict[str, Any], config: AttackConfig) -> list[str]:
    """The channels that are asked for and not done; exact states are no channel."""
    done = results["attacks"]["text/hybrid"]["channels"]
    asked = dict.fromkeys(config.channels or TEXT_CHANNELS)
    return [name for name in asked if name != "fp32" and Channel.named(name).name not in done]


def attacked(case: TextCase, policy: str, settings: dict[str, Any], observe: bool = True) -> dict[str, Any]:
    """What results.json keeps of one policy on exact states."""
    began = time.perf_counter()
    seed, point = settings["seed"], settings.get("operating_point")
    options = {**case.learned, "noise": case.noise} if policy == "hybrid" else {}
    if settings.get("text_loss") == "scaled":
        options["spread"] = state_spreads(case.model, case.datamodule.train[0].tolist(), seed)
    inverter = inverter_of(policy, case.model, seed, point, observe=observe, **options)
    prepared = time.perf_counter() - began
    truth = case.truth.tolist()
    recovery = whole(inverter.invert(case.states, truth), truth)
    return {
        **scores_of(recovery, truth, case.tokenizer),
        "verified": recovery.verified_share,
        "margin": case.margin,
        "seconds_per_token": recovery.seconds_per_token["total"],
        "seconds": sum(recovery.seconds.values()),
        "preparation": round(prepared, 2),
        "residual": mean(recovery.residual),
        "observed": observed(recovery, truth, case.tokenizer.token),
        "recovered": in_words(recovery, truth, case.tokenizer),
        "channels": {},
        "inputs": list(range(len(truth))),
        "samples": len(truth),
        "available": len(case.prompts),
        "settings": settings,
        "format": FORMAT,
        "environment": environment(case.module.device, seed, time.perf_counter() - began),
    }  # fmt: skip


def through(case: TextCase, channel: Channel, seed: int) -> dict[str, Any]:
    """What is left of utility and of text behind a channel whose format and noise the attacker knows."""
    truth, leaked = case.truth.tolist(), channel(case.states, seed)
    noise = math.hypot(channel.spread(leaked), case.noise)
    inverter = Hybrid(case.model, **case.learned, seed=seed, noise=noise, observe=False)
    recovery = whole(inverter.invert(leaked, truth), truth)
    useful = measure_utility(case.module, case.datamodule, channel.opened(seed + 1))
    explained = within_noise(noise, case.model.state_width)
    seen = observed(recovery, truth, explained=explained)
    return {
        **scores_of(recovery, truth, case.tokenizer),
        "verified": recovery.verified_share,
        "seconds_per_token": recovery.seconds_per_token["total"],
        "perplexity": useful.perplexity,
        "accuracy": useful.accuracy,
        "noise": noise,
        "recovered": in_words(recovery, truth, case.tokenizer)[:SHOWN],
        "format": CHANNEL_FORMAT,
        "detector": {name: seen["detector"].get(name) for name in ("precision", "recall", "auroc", "located")},
    }


def inverter_of(
    policy: str,
    model: SplitLanguageModel,
    seed: int = 0,
    operating_point: str | None = None,
    **options: Any,
) -> Inverter:
    """An inverter that follows a policy.

    Args:
        policy: hybrid, single-commit or sipit.
        model: the split language model whose cut layer leaked.
        seed: for whatever is random.
        operating_point: of single-commit.
        options: of the inverter; hybrid's probe and table are among them (`learned`), and single-commit's spread, with
            which its loss is scaled (`state_spreads`).
    """
    if policy == "single-commit":
        return SingleCommit(model, **OPERATING_POINTS[operating_point or "baseline"], seed=seed, **options)
    if policy == "sipit":
        return Sipit(model, seed=seed, **options)
    return Hybrid(model, seed=seed, **options)


def scores_of(recovery: Recovery, truth: list[list[int]], tokenizer: TextTokenizer) -> dict[str, Any]:
    """How much of each prompt came back, as results.json keeps it."""
    ours, true = ([tokenizer.decode(ids) for ids in each] for each in (recovery.tokens, truth))
    return scored(
        {
            "em": exact_match(recovery.tokens, truth),
            "token_accuracy": token_accuracy(recovery.tokens, truth),
            "similarity": similarity(ours, true),
        }
    )


def in_words(recovery: Recovery, truth: list[list[int]], tokenizer: TextTokenizer) -> list[dict[str, Any]]:
    """Each prompt's true text, and token by token what was recovered, whether it is verified and whether right."""
    return [
        {
            "truth": tokenizer.decode(true),
            "tokens": [tokenizer.token(token) for token in tokens],
            "verified": verified,
            "right": [ours == theirs for ours, theirs in zip(tokens, true, strict=True)],
        }
        for tokens, true, verified in zip(recovery.tokens, truth, recovery.verified, strict=True)
    ]


def whole(recovery: Recovery, truth: list[list[int]]) -> Recovery:
    """The recovery, if it was not stopped on the way: half a walk says nothing about a run."""
    if [len(tokens) for tokens in recovery.tokens] != [len(tokens) for tokens in truth]:
        raise KeyboardInterrupt
    return recovery


def mean(lists: list[list[float]]) -> float:
    """The mean of all numbers in some lists."""
    every = [value for each in lists for value in each]
    return sum(every) / len(every)
