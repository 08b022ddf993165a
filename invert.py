"""Attacks that need no run: text out of the hidden states of a language model.

python invert.py text --model smollm2 --text "The launch code is 7319."
python invert.py text --model DIR --states leaked.pt          # a leaked tensor: the text, and whether to believe it
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attacks.text.channel import DTYPES, channel_noise, through_channel
from attacks.text.diagnostics import detect, failures_by_category
from attacks.text.hybrid import Hybrid
from attacks.text.inverter import Inverter, checked_states
from attacks.text.recovery import Recovery
from attacks.text.single_commit import BASELINE, FAST, HIGH_ACCURACY, SingleCommit
from attacks.text.sipit import Sipit
from datamodules.text import pydoc
from datamodules.tokens import TextTokenizer, blocks
from errors import UserError, first_line
from files import replacing
from lightning_modules.causal_lm import load_language_model
from lightning_modules.networks.language import SplitLanguageModel
from lightning_modules.split_module import SplitModule
from metrics.text import exact_match, similarity, token_accuracy
from reports.tables import recovery_table
from runs.checkpoints import load_checkpoint
from runs.command_line import add_dataclass, run_command, script_parser
from runs.environment import environment, pick_device
from runs.folder import Run

POLICIES = ("hybrid", "single-commit", "sipit")
OPERATING_POINTS = {"fast": FAST, "baseline": BASELINE, "high-accuracy": HIGH_ACCURACY}

EXAMPLES = """\
  python invert.py text --model smollm2 --text "The launch code is 7319."
  python invert.py text --model gpt2 --text "The launch code is 7319." --policy single-commit --operating-point baseline
  python invert.py text --model smollm2 --prompts prompts.txt --layer 15 --noise 0.01 --dtype fp16
  python invert.py text --model checkpoints/pydoc-gpt2-tiny-… --prompts prompts.txt        a run of train.py
  python invert.py text --model DIR --states leaked.pt                                     no ground truth
"""


@dataclass
class TextConfig:
    """One inversion.

    Args:
        model: gpt2, smollm2, any causal LM on the hub or in a folder of the hub's layout, or a run of train.py.
        text: prompts whose states are leaked, on the command line.
        prompts: a file of them, one a line.
        states: a leaked tensor instead, (T, d) or (B, T, d), or a list of (T, d), in a .pt file.
        layer: how many blocks the client runs, last (all, before the final norm) or final (after it); default: last,
            or where the run was cut.
        policy: hybrid, single-commit or sipit.
        operating_point: of single-commit: fast, baseline or high-accuracy.
        noise: what the channel adds, as a fraction of the states' root mean square.
        dtype: what the channel sends: fp32, fp16, bf16 or int8.
        candidates: the most tokens that hybrid tries at a position; 0 for the whole vocabulary.
        seed: everything random follows from it.
        device: auto, cpu, cuda, cuda:1, …
        cache: where what a model's hybrid inverter has learned is kept.
        out: a .json file for what was recovered.
    """

    model: str = "smollm2"
    text: list[str] = field(default_factory=list)
    prompts: str | None = None
    states: str | None = None
    layer: str | None = None
    policy: str = "hybrid"
    operating_point: str = "baseline"
    noise: float = 0.0
    dtype: str = "fp32"
    candidates: int = 0
    seed: int = 0
    device: str = "auto"
    cache: str = "checkpoints/.text"
    out: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("text", "prompts", "states") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"give one of --text, --prompts and --states; got {' and '.join('--' + g for g in given)}")
        if self.policy not in POLICIES:
            raise UserError(f"--policy must be one of {', '.join(POLICIES)}; got {self.policy}")
        if self.operating_point not in OPERATING_POINTS:
            raise UserError(
                f"--operating-point must be one of {', '.join(OPERATING_POINTS)}; got {self.operating_point}"
            )
        if self.dtype not in DTYPES:
            raise UserError(f"--dtype must be one of {', '.join(DTYPES)}; got {self.dtype}")
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"--noise must be a number of at least 0; got {self.noise:g}")
        if self.candidates < 0 or self.seed < 0:
            raise UserError("--candidates and --seed must be at least 0")


def invert_text(config: TextConfig) -> dict[str, Any]:
    """What was recovered, and how far it can be believed; with the true text known, how much of it is right."""
    device = pick_device(config.device)
    model, tokenizer, source = language_model_of(config)
    model = model.to(device).eval().requires_grad_(False)
    truth = [tokenizer.encode(text) for text in texts_of(config)] if config.states is None else None
    if truth is not None:
        leaked = [leak(model, ids, config, number).to(device) for number, ids in enumerate(truth)]
    else:
        leaked = leaked_states(Path(str(config.states)))
    leaked = checked_states(leaked, model)  # before anything is learned about the model
    noise = max(channel_noise(z, config.dtype, config.noise) for z in leaked)
    recovery = inverter_of(config, model, tokenizer, noise).invert(leaked, truth)
    suspicious = 10 * noise / max(min(z.square().mean().sqrt().item() for z in leaked), 1e-30)
    detection = detect(recovery, suspicious) if noise > 0 else detect(recovery)
    texts = [tokenizer.decode(ids) for ids in recovery.tokens]
    results: dict[str, Any] = {
        "model": {"name": config.model, "source": source, "cut": model.cut_layer, "tokenizer": tokenizer.name},
        "config": dataclasses.asdict(config),
        "prompts": [
            {"text": text, "tokens": ids, "verified": sure, "discrete_loss": loss, "suspicious_from": first}
            for text, ids, sure, loss, first in zip(
                texts, recovery.tokens, recovery.verified, recovery.discrete_loss, detection.first, strict=True
            )
        ],
        "verified": recovery.verified_share,
        "seconds_per_token": recovery.seconds_per_token,
        "environment": environment(device, config.seed, sum(recovery.seconds.values())),
    }
    if truth is not None:
        results |= scores_of(recovery, truth, texts, tokenizer)
    return results


def scores_of(recovery: Recovery, truth: list[list[int]], texts: list[str], tokenizer: TextTokenizer) -> dict[str, Any]:
    """How much of the text came back, where it is known."""
    true_texts = [tokenizer.decode(ids) for ids in truth]
    return {
        "truth": true_texts,
        "em": exact_match(recovery.tokens, truth).mean().item(),
        "token_accuracy": token_accuracy(recovery.tokens, truth).mean().item(),
        "similarity": similarity(texts, true_texts).mean().item(),
        "failures": failures_by_category(recovery.tokens, truth, tokenizer.token),
    }


def language_model_of(config: TextConfig) -> tuple[SplitLanguageModel, TextTokenizer, str]:
    """The split model, its tokenizer, and where it came from: a run of ours, or a model by name or folder."""
    run = Run(Path(config.model))
    if not run.checkpoint.is_file():
        model, tokenizer = load_language_model(config.model)
        return SplitLanguageModel(model, config.layer or "last"), tokenizer, str(model.name_or_path)
    checkpoint = load_checkpoint(run.checkpoint)
    language = checkpoint["hyper_parameters"].get("language")
    if not language:
        raise UserError(f"{run.folder} is a run on images or vectors; evaluate.py attacks it")
    options = dict(checkpoint["hyper_parameters"])
    module = SplitModule(**options)
    module.load_state_dict(checkpoint["state_dict"])
    network = module.network
    assert isinstance(network, SplitLanguageModel)
    if config.layer is not None and config.layer != network.cut_layer:
        raise UserError(
            f"{run.folder} was cut after {network.cut_layer}, and its defence sits there; leave --layer out"
        )
    return network, TextTokenizer.from_json(language["tokenizer"]), run.name


def texts_of(config: TextConfig) -> list[str]:
    """The prompts, none of them empty."""
    texts = config.text
    if config.prompts is not None:
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
def leak(model: SplitLanguageModel, ids: list[int], config: TextConfig, number: int) -> Tensor:
    """The states (T, d) that leave the client for one prompt, as the channel delivers them."""
    if len(ids) > model.context:
        raise UserError(f"prompt {number} has {len(ids)} tokens; the model's context ends at {model.context}")
    z = model.encoder(torch.tensor([ids], device=model.embeddings.weight.device))[0]
    return through_channel(z, config.dtype, config.noise, config.seed + number)


def leaked_states(path: Path) -> list[Tensor]:
    """The prompts' states (T, d) in a file; tensors only, nothing that runs."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated, a pickle that wants to run something, no such file
        raise UserError(f"--states {path} cannot be read as tensors ({first_line(error)})") from error
    states = list(loaded) if isinstance(loaded, list | tuple) or getattr(loaded, "ndim", 0) == 3 else [loaded]
    if not states or not all(isinstance(state, Tensor) and state.ndim == 2 for state in states):
        raise UserError(f"--states {path} must hold a tensor (T, d) or (B, T, d), or a list of tensors (T, d)")
    return [state.float() for state in states]


def inverter_of(config: TextConfig, model: SplitLanguageModel, tokenizer: TextTokenizer, noise: float) -> Inverter:
    """The policy that the config asks for."""
    if config.policy == "single-commit":
        return SingleCommit(model, **OPERATING_POINTS[config.operating_point], seed=config.seed)
    if config.policy == "sipit":
        return Sipit(model, seed=config.seed)
    own = blocks(pydoc().train, tokenizer, 63).tolist()  # text that any attacker has
    options = {"noise": noise, "candidates": config.candidates or None, "seed": config.seed}
    return Hybrid.prepared(model, own, Path(config.cache), **options)


def main(argv: list[str] | None = None) -> int:
    """Parse, invert, print."""
    usage = "text --model NAME (--text TEXT … | --prompts FILE | --states FILE) [FLAG …]"
    description = "Recover text from the hidden states of a language model."
    parser = script_parser("invert.py", usage, description, EXAMPLES)
    parser.add_argument("what", type=str, help="text")
    add_dataclass(parser, TextConfig)

    def command() -> None:
        parsed = parser.parse_args(argv).as_dict()
        if (what := parsed.pop("what")) != "text":
            raise UserError(f"invert.py recovers text; got {what}")
        config = TextConfig(**parsed)
        if config.out is not None and not Path(config.out).resolve().parent.is_dir():
            raise UserError(f"--out {config.out}: its folder is not there")
        results = invert_text(config)
        recovery_table(results)
        if config.out is not None:
            with replacing(Path(config.out)) as temporary:
                temporary.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
