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

from sweetspot.attacks.text.channel import Channel, noise_unit
from sweetspot.attacks.text.diagnostics import one_step_margin
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.posterior import (
    BEAM,
    SMALL,
    Posterior,
    bayes_given_prefix,
    blind_text,
    learned_behind_noise,
)
from sweetspot.attacks.text.probe import state_spreads
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.released import as_released
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, SingleCommit, scaled
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.datamodules.language import TextDataModule
from sweetspot.datamodules.text import first_tokens, load_text
from sweetspot.datamodules.tokens import TextTokenizer
from sweetspot.errors import UserError
from sweetspot.evaluations.evidence import add_leaks
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import measure_utility
from sweetspot.metrics.summary import BLIND, scored
from sweetspot.metrics.text import exact_match, similarity, token_accuracy
from sweetspot.reports.tables import attack_line
from sweetspot.reports.text_figures import observations_figure
from sweetspot.reports.text_samples import write_samples
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.choices import TEXT_CHANNELS
from sweetspot.runs.environment import environment, pick_device, reproducible
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import check_same_data
from sweetspot.runs.record import complete

FORMAT = 1  # raised when an attack of the same settings begins to mean something else: old results are then redone
CHANNEL_FORMAT = 3  # the same for what came through a channel; since 3 a beam over prefixes reads it
NEEDED = ("available", "channels", "observed", "margin", "verified", "seconds_per_token")  # of a finished attack
LENGTH = 10  # tokens in a prompt, as in the paper
MARGIN_PROMPTS = 20  # of the prompts, for the one-step margin
BAYES_PROMPTS = 20  # of the prompts, for the best that anyone can do behind true prefixes: it tries every token
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
        expecting: the language model whose prior the attacker has behind noise; None: the attacked one.
    """

    module: SplitModule
    tokenizer: TextTokenizer
    datamodule: TextDataModule
    count: int
    cache: Path
    known_unit: float | None = None
    expecting: SplitLanguageModel | None = None

    @classmethod
    def of(
        cls,
        run: Run,
        results: dict[str, Any],
        count: int,
        dataset: str | None,
        device: torch.device,
        prior: str | None = None,
    ) -> TextCase:
        """The case in a run's folder."""
        module = load_module(run.checkpoint).to(device)
        tokenizer = TextTokenizer.from_json(module.hparams["language"]["tokenizer"])
        datamodule = text_of(results, tokenizer, dataset)
        expecting = None if prior is None else prior_of(Run(Path(prior)), tokenizer).to(device)
        return cls(module, tokenizer, datamodule, count, run.folder, known_unit(results), expecting)

    @cached_property
    def model(self) -> SplitLanguageModel:
        """The split language model as an attacker sees it, with the states that its defence releases."""
        return released_model(self.module)

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
        """What hybrid learns from the run's training text, for exact states."""
        return learned(self.model, self.datamodule.train[0].tolist(), self.cache, lengths=self.lengths)

    @property
    def lengths(self) -> list[int]:
        """How many tokens each of the attacked prompts has."""
        return [self.truth.shape[1]] * len(self.truth)

    @cached_property
    def starts(self) -> Tensor:
        """The first token of each training document (N,)."""
        return first_tokens(self.datamodule.corpus.train, self.tokenizer, 1)[:, 0]

    def hybrid(self, noise: float, beam: int, seed: int, observe: bool = False) -> Inverter:
        """The strongest attacker of states with noise of this standard deviation, or with none."""
        if noise == 0:
            return Hybrid(self.model, **self.learned, seed=seed, observe=observe)
        own = self.datamodule.train[0].tolist()
        known = learned_behind_noise(self.model, own, self.starts, noise, self.cache, self.lengths)
        # of noise of two kinds, a release's and a channel's, the sum is taken for Gaussian
        power = self.module.defence.release.power if noise == self.noise else 2.0
        known["expecting"] = self.expecting
        return Posterior(self.model, noise, power, **known, beam=beam, seed=seed, observe=observe)

    def bayes(self, leaked: dict[str, tuple[Tensor, float]], beam: int) -> dict[str, dict[str, Any]]:
        """By name, how often the best guess of any token is right behind the true text before it.

        Args:
            leaked: the states (B, T, k) of the attacked prompts, and the standard deviation of the noise on them.
            beam: of the attacker whose prior and noise count.
        """
        noisy = {name: each for name, each in leaked.items() if each[1] > 0}
        if not noisy or self.model.vocabulary > SMALL:
            return {}
        inverters = [self.hybrid(noise, beam, 0) for _, noise in noisy.values()]
        assert all(isinstance(each, Posterior) for each in inverters)
        few, truth = [z[:BAYES_PROMPTS] for z, _ in noisy.values()], self.truth[:BAYES_PROMPTS].to(self.module.device)
        right = bayes_given_prefix(inverters, few, truth)  # type: ignore[arg-type]
        found = [{"token_accuracy": each.double().mean().item(), "positions": each.numel()} for each in right]
        return dict(zip(noisy, found, strict=True))

    def through(self, channel: Channel, seed: int) -> tuple[Tensor, float]:
        """The states of the attacked prompts behind a channel, and the standard deviation of the noise on them."""
        leaked = channel(self.states, seed)
        return leaked, math.hypot(channel.spread(leaked), self.noise)

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


def released_model(module: SplitModule) -> SplitLanguageModel:
    """A run's split language model as it is released; all weights are shared."""
    network = module.network
    assert isinstance(network, SplitLanguageModel)
    return as_released(network, module.defence.release, module.defence.bottleneck)


def prior_of(run: Run, tokenizer: TextTokenizer) -> SplitLanguageModel:
    """The language model of a run that the attacker trained for itself; it must have the same tokens."""
    module = load_module(run.checkpoint)
    language = module.hparams.get("language")
    known = language and TextTokenizer.from_json(language["tokenizer"]).backend.get_vocab()
    if known != tokenizer.backend.get_vocab():
        raise UserError(f"--prior {run.folder} does not have the attacked run's tokens; train one on the same text")
    return released_model(module).eval().requires_grad_(False)


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
    case = TextCase.of(run, results, config.prompts, dataset, device, config.prior)
    if is_new := not blind_is_done(results, config):
        results["attacks"][BLIND] = blind(case, results, config)  # written down with the first leak that it is for
        print(attack_line(BLIND, results["attacks"][BLIND]), flush=True)
    for policy, settings in asked:
        if not finished(results, policy, settings, config, with_channels=False):
            results["attacks"][f"text/{policy}"] = attacked(case, policy, settings, config.observe)
            enter(run, results)
            print(attack_line(f"text/{policy}", results["attacks"][f"text/{policy}"]), flush=True)
        if policy == "hybrid":
            attack_channels(run, results, case, config, settings)
        observations_figure(results["attacks"][f"text/{policy}"]["observed"], figure_of(run, policy))
    if is_new:
        enter(run, results)
    return results


def attack_channels(
    run: Run, results: dict[str, Any], case: TextCase, config: AttackConfig, settings: dict[str, Any]
) -> None:
    """Attack what comes through each channel that is asked for and not done, and write it down."""
    seed, beam, hybrid = settings["seed"], settings["beam"], results["attacks"]["text/hybrid"]
    channels = [Channel.named(name, case.unit) for name in missing_channels(results, config)]
    best = case.bayes({each.name: case.through(each, seed) for each in channels if each.noise > 0}, beam)
    for channel in channels:
        record = through(case, channel, seed, beam)
        hybrid["channels"][channel.name] = record | ({"bayes": best[channel.name]} if channel.name in best else {})
        hybrid["noise_unit"] = case.unit
        enter(run, results)
        print(attack_line(f"text/hybrid, {channel.name}", hybrid["channels"][channel.name]), flush=True)


def text_attacked(run: Run, config: AttackConfig) -> bool:
    """Whether a run has already been through everything that is asked for."""
    results, asked = asked_of(run, config)
    return all_done(run, results, asked, config)


def all_done(
    run: Run, results: dict[str, Any], asked: Sequence[tuple[str, dict[str, Any]]], config: AttackConfig
) -> bool:
    """Whether every policy that is asked for is finished, and drawn: a run may have been killed in between."""
    return blind_is_done(results, config) and all(
        finished(results, policy, settings, config) and figure_of(run, policy).is_file() for policy, settings in asked
    )


def blind_is_done(results: dict[str, Any], config: AttackConfig) -> bool:
    """Whether the results say what a guess without any states is worth on all prompts that were or will be attacked."""
    done = results["attacks"].get(BLIND)
    return done is not None and done["samples"] >= min(prompts_needed(results, config), done["available"])


def prompts_needed(results: dict[str, Any], config: AttackConfig) -> int:
    """On how many prompts a leak is measured."""
    return max([config.prompts, *(int(each["samples"]) for each in results["attacks"].values())])


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
        each["channels"] = {name: record for name, record in behind.items() if up_to_date(record)}
    seed = results["config"]["seed"] if config.attack_seed is None else config.attack_seed
    return results, [(policy, settings_of(policy, config, seed)) for policy in config.text_policies()]


def up_to_date(record: dict[str, Any]) -> bool:
    """Whether a channel's record means what it would today."""
    return bool(record.get("format", 1) == CHANNEL_FORMAT)


def enter(run: Run, results: dict[str, Any]) -> None:
    """Write down what is known so far."""
    add_leaks(results)
    write_samples(results, run.folder / "text-recovered.txt")
    run.write_results(results)


def settings_of(policy: str, config: AttackConfig, seed: int) -> dict[str, Any]:
    """What a policy's result depends on, as plain data: a finished attack is known by it."""
    own: dict[str, Any] = {
        "single-commit": {"operating_point": config.operating_point},
        "hybrid": {"beam": config.beam},
    }
    if config.prior is not None:
        own["hybrid"]["prior"] = Path(config.prior).resolve().name
    if config.text_loss != "paper":
        own["single-commit"]["text_loss"] = config.text_loss
    return {"policy": policy, "length": LENGTH, "seed": seed, **own.get(policy, {})}


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


def blind(case: TextCase, results: dict[str, Any], config: AttackConfig) -> dict[str, Any]:
    """What results.json keeps of the attacker who sees no states: one guess, the same for every prompt."""
    began = time.perf_counter()
    truth = case.prompts[: prompts_needed(results, config)].tolist()
    guess = blind_text(case.model.eval(), case.starts, len(truth[0]))
    spent = time.perf_counter() - began
    ours = [guess] * len(truth)
    return {
        **scores_of(ours, truth, case.tokenizer),
        "guess": case.tokenizer.decode(guess),
        "verified": 0.0,
        "margin": case.margin,
        "seconds_per_token": spent / len(guess),
        "seconds": spent,
        "observed": {},
        "recovered": [],
        "channels": {},
        "inputs": list(range(len(truth))),
        "samples": len(truth),
        "available": len(case.prompts),
        "settings": {"policy": "blind", "length": LENGTH},
        "format": FORMAT,
        "environment": environment(case.module.device, results["config"]["seed"], spent),
    }


def attacked(case: TextCase, policy: str, settings: dict[str, Any], observe: bool = True) -> dict[str, Any]:
    """What results.json keeps of one policy on the states that leave the client."""
    began = time.perf_counter()
    seed = settings["seed"]
    if policy == "hybrid":
        inverter = case.hybrid(case.noise, settings["beam"], seed, observe)
    else:
        options: dict[str, Any] = {"observe": observe}
        if settings.get("text_loss") == "scaled":
            options["spread"] = state_spreads(case.model, case.datamodule.train[0].tolist(), seed)
        inverter = inverter_of(policy, case.model, seed, settings.get("operating_point"), **options)
    prepared = time.perf_counter() - began
    truth = case.truth.tolist()
    recovery = whole(inverter.invert(case.states, truth), truth)
    best = case.bayes({policy: (case.states, case.noise)}, settings["beam"]) if policy == "hybrid" else {}
    return {
        **scores_of(recovery.tokens, truth, case.tokenizer),
        **({"bayes": best[policy]} if policy in best else {}),
        "verified": recovery.verified_share,
        "margin": case.margin,
        "seconds_per_token": recovery.seconds_per_token["total"],
        "seconds": sum(recovery.seconds.values()),
        "preparation": round(prepared, 2),
        "residual": mean(recovery.residual),
        "observed": observed(recovery, truth, case.tokenizer.token),
        "recovered": recovered_prompts(recovery, truth, case.tokenizer),
        "channels": {},
        "inputs": list(range(len(truth))),
        "samples": len(truth),
        "available": len(case.prompts),
        "settings": settings,
        "format": FORMAT,
        "environment": environment(case.module.device, seed, time.perf_counter() - began),
    }


def through(case: TextCase, channel: Channel, seed: int, beam: int = BEAM) -> dict[str, Any]:
    """What is left of utility and of text behind a channel whose format and noise the attacker knows."""
    truth, (leaked, noise) = case.truth.tolist(), case.through(channel, seed)
    recovery = whole(case.hybrid(noise, beam, seed).invert(leaked, truth), truth)
    useful = measure_utility(case.module, case.datamodule, channel.opened(seed + 1))
    detector = observed(recovery, truth)["detector"]
    kept = ("precision", "recall", "auroc", "token_auroc", "located", "calibration", "calibration_by_chance")
    return {
        **scores_of(recovery.tokens, truth, case.tokenizer),
        "verified": recovery.verified_share,
        "seconds_per_token": recovery.seconds_per_token["total"],
        "perplexity": useful.perplexity,
        "accuracy": useful.accuracy,
        "noise": noise,
        "inputs": list(range(len(truth))),
        "recovered": recovered_prompts(recovery, truth, case.tokenizer)[:SHOWN],
        "format": CHANNEL_FORMAT,
        "detector": {name: detector.get(name) for name in kept},
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
        options: of the inverter; what hybrid learned is among them, and where noise is, it is the posterior's; and
            the spread by which single-commit's loss is scaled (`state_spreads`).
    """
    if policy == "single-commit":
        point = OPERATING_POINTS[operating_point or "baseline"]
        if "spread" in options:
            point = scaled(point, model, options.pop("spread"))
        return SingleCommit(model, **point, seed=seed, **options)
    if policy == "sipit":
        return Sipit(model, seed=seed, **options)
    return Posterior(model, seed=seed, **options) if options.get("noise") else Hybrid(model, seed=seed, **options)


def scores_of(tokens: list[list[int]], truth: list[list[int]], tokenizer: TextTokenizer) -> dict[str, Any]:
    """How much of each prompt came back, as results.json keeps it."""
    ours, true = ([tokenizer.decode(ids) for ids in each] for each in (tokens, truth))
    return scored(
        {
            "em": exact_match(tokens, truth),
            "token_accuracy": token_accuracy(tokens, truth),
            "similarity": similarity(ours, true),
        }
    )


def recovered_prompts(recovery: Recovery, truth: list[list[int]], tokenizer: TextTokenizer) -> list[dict[str, Any]]:
    """Each prompt's true text, and token by token what was recovered, whether it is verified and whether right.

    Behind noise, with the probability of each token and of the whole prompt.
    """
    found: list[dict[str, Any]] = [
        {
            "truth": tokenizer.decode(true),
            "tokens": [tokenizer.token(token) for token in tokens],
            "verified": verified,
            "right": [ours == theirs for ours, theirs in zip(tokens, true, strict=True)],
        }
        for tokens, true, verified in zip(recovery.tokens, truth, recovery.verified, strict=True)
    ]
    for prompt, doubt in zip(found, doubts(recovery), strict=True):
        prompt |= doubt
    return found


def doubts(recovery: Recovery) -> list[dict[str, Any]]:
    """For each prompt the probability of each token and of all of them together; nothing where they are verified."""
    if recovery.probability is None or recovery.confidence is None:
        return [{} for _ in recovery.tokens]
    pairs = zip(recovery.probability, recovery.confidence, strict=True)
    return [{"probability": [round(p, 4) for p in each], "confidence": round(sure, 4)} for each, sure in pairs]


def whole(recovery: Recovery, truth: list[list[int]]) -> Recovery:
    """The recovery, if it was not stopped on the way: half a walk says nothing about a run."""
    if [len(tokens) for tokens in recovery.tokens] != [len(tokens) for tokens in truth]:
        raise KeyboardInterrupt
    return recovery


def mean(lists: list[list[float]]) -> float:
    """The mean of all numbers in some lists."""
    every = [value for each in lists for value in each]
    return sum(every) / len(every)
