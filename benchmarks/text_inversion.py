"""How fast text is recovered: our inverters against the papers' way of running theirs, and what longer texts cost.

    python benchmarks/text_inversion.py                             # gpt2-tiny, trained first where it is not yet
    python benchmarks/text_inversion.py --model smollm2 --layer 15 --prompts 10 --reference-prompts 1 --only hybrid
    python benchmarks/text_inversion.py --model smollm2 --only cold
    python benchmarks/text_inversion.py --model smollm2 --layer last --skip 10 --prompts 10 --only forward

Same model, same prompts, in turns: the machine's speed may drift. Ours recovers all prompts at once. Theirs takes them
one at a time, so that some of them tell its seconds per token. Every ratio is their seconds per token by ours; of
`growth`, those of our own hybrid at 10 tokens by those at 80: 1 is flat, below 1 longer texts cost more. Of `forward`,
theirs is one forward pass of the same prompts up to the cut, in batches: 1 is the limit of verified recovery. Of
`cold`, seconds from nothing prepared to one recovered prompt: ours with what `learned` chooses for it, theirs a probe
with a softmax over the whole vocabulary, on all of the text, and a table of all first positions.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # `train` must be train.py, not its namesake beside this file

import torch
from torch import Tensor

from benchmarks.text_references import (
    SHARE,
    Walk,
    seconds_of_whole_preparation,
    single_commit_as_published,
    sipit_as_released,
    targets_of,
)
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.probe import ROWS
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, SingleCommit
from sweetspot.datamodules.text import Corpus, first_tokens, load_text
from sweetspot.datamodules.tokens import TextTokenizer, blocks
from sweetspot.errors import UserError
from sweetspot.evaluations.leak import language_model_of, own_text
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.metrics.text import exact_match
from sweetspot.progress import duration, steps_shown
from sweetspot.runs.command_line import parse_train, run_command, train_parser
from sweetspot.runs.environment import pick_device
from sweetspot.training import train

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "gpt2_tiny.yaml"
PARTS = ("hybrid", "single-commit", "growth", "cold")
ALONE = (*PARTS, "forward")  # a figure of hybrid's, for models on which theirs takes hours
REFERENCES = {"hybrid": 20, "single-commit": 2}  # prompts for theirs: SIPIT's steps vary more, and take less time
AMORTISED = 100  # prompts that a model's one-time preparation is shared out to
LENGTHS = (10, 20, 40, 80)
GROWTH_LOOP, GROWTH_CANDIDATES = InnerLoop(steps=10), 100  # what grows is the cost of a step, not their number

Reference = Callable[[SplitLanguageModel, Tensor, Callable[[int], None]], Walk]


@dataclass
class Setting:
    """The model, the held-out text, and the prompts of it with their leaked states (T, d)."""

    model: SplitLanguageModel
    tokenizer: TextTokenizer
    corpus: Corpus
    prompts: list[list[int]]
    states: list[Tensor]

    @property
    def device(self) -> torch.device:
        return self.model.embeddings.weight.device


def default_run(out: str) -> str:
    """The folder of the undefended gpt2-tiny cut at its last layer: found finished, or trained."""
    parser = train_parser("python train.py", "the benchmark's model", "")
    config = parse_train(
        parser, ["--config", str(CONFIG), "--lambda", "0", "--cut", "last", "--attacks", "none", "--out", out]
    )
    results = train(config)
    torch.use_deterministic_algorithms(False)  # as training leaves it, and nobody who inverts
    return str(Path(out) / results["name"])


def setting_of(chosen: argparse.Namespace) -> Setting:
    """What all parts are run on."""
    device = pick_device(chosen.device)
    name = chosen.model or default_run(chosen.out)
    model, tokenizer, source = language_model_of(LeakConfig(model=name, layer=chosen.layer))
    model = model.to(device).eval().requires_grad_(False)
    corpus = load_text(chosen.text)
    prompts = first_tokens(corpus.test, tokenizer, chosen.length, chosen.skip + chosen.prompts)[chosen.skip :].tolist()
    print(
        f"model    {source}: {model.vocabulary:,} tokens, width {model.width}, cut after {model.cut_layer}\n"
        f"prompts  {len(prompts)} of {chosen.length} tokens, from held-out documents of {corpus.name}"
        f"{f', the first {chosen.skip} left out' if chosen.skip else ''}\n"
        f"machine  {device}, {torch.get_num_threads()} threads",
        flush=True,
    )
    return Setting(model, tokenizer, corpus, prompts, leaked(model, prompts))


@torch.no_grad()
def leaked(model: SplitLanguageModel, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    """The states (T, d) of each prompt, as one forward pass of it gives them."""
    return [model.encoder(torch.tensor([ids], device=model.embeddings.weight.device))[0] for ids in prompts]


def split_of(seconds: dict[str, float]) -> str:
    """Where the time of one token goes, in words."""
    whole = sum(seconds.values())
    parts = ", ".join(f"{part} {spent / whole:.0%}" for part, spent in seconds.items())
    return f"{whole:.3g} s/token: {parts}"


def per_token(takes: Sequence[Recovery | Walk], tokens: int) -> dict[str, float]:
    """The seconds of one token by what they were spent on, over several takes of `tokens` tokens in all."""
    return {part: sum(take.seconds[part] for take in takes) / tokens for part in takes[0].seconds}


def em(tokens: list[list[int]], truth: list[list[int]]) -> float:
    """The percentage of prompts that are right at every position."""
    return 100 * exact_match(tokens, truth[: len(tokens)]).mean().item()


def tried_per_token(recovery: Recovery) -> float:
    return statistics.mean(each for prompt in recovery.tried for each in prompt)


@dataclass
class Turns:
    """What both came to: ours on all prompts, every time, and theirs on the first ones, one after the other."""

    prompts: list[list[int]]
    ours: list[Recovery]
    theirs: list[Walk]

    @property
    def split_of_ours(self) -> dict[str, float]:
        return per_token(self.ours, len(self.ours) * sum(map(len, self.prompts)))

    @property
    def split_of_theirs(self) -> dict[str, float]:
        return per_token(self.theirs, sum(len(walk.tokens) for walk in self.theirs))

    @property
    def agreement(self) -> tuple[int, int]:
        """At how many positions both commit the same token, and of how many."""
        both = zip(self.ours[0].tokens, self.theirs, strict=False)
        same = [a == b for ours, walk in both for a, b in zip(ours, walk.tokens, strict=True)]
        return sum(same), len(same)

    def told(self) -> Turns:
        """The same, once it is printed."""
        recovery, subset = self.ours[0], len(self.theirs)
        ours = em(recovery.tokens[:subset], self.prompts)
        theirs = em([walk.tokens for walk in self.theirs], self.prompts)
        print(
            f"  ours: {split_of(self.split_of_ours)}\n"
            f"    EM {em(recovery.tokens, self.prompts):.0f} %, on the first {subset} prompts {ours:.0f} %; "
            f"{recovery.verified_share:.1%} of the tokens verified, {tried_per_token(recovery):.0f} tried a token\n"
            f"  theirs, on these {subset}: {split_of(self.split_of_theirs)}\n"
            f"    EM {theirs:.0f} %; the same token at {self.agreement[0]} of {self.agreement[1]} positions",
            flush=True,
        )
        return self


def in_turns(name: str, setting: Setting, ours: Inverter, reference: Reference, count: int, rounds: int) -> Turns:
    """Theirs on each of the first `count` prompts, and in between, evenly, `rounds` times ours on all prompts.

    Theirs has its targets before its clock starts.
    """
    print(f"{name}: theirs on {count} of the {len(setting.prompts)} prompts, ours on all, {rounds} times", flush=True)
    turns = Turns(setting.prompts, [], [])
    when = [int((turn + 0.5) * count / rounds) for turn in range(rounds)]
    for number, prompt in enumerate(setting.prompts[:count]):
        for _ in range(when.count(number)):
            turns.ours.append(ours.invert(setting.states))
            print(f"  ours: {split_of(per_token(turns.ours[-1:], sum(map(len, setting.prompts))))}", flush=True)
        targets = targets_of(setting.model, prompt)
        with steps_shown(f"theirs, prompt {number + 1}", len(prompt)) as done:
            walk = reference(setting.model, targets, done)
        turns.theirs.append(walk)
        print(
            f"  theirs, prompt {number + 1}: {sum(walk.seconds.values()) / len(prompt):.3g} s/token, "
            f"{statistics.mean(walk.steps):.0f} steps and {statistics.mean(walk.tried):.0f} tried a token",
            flush=True,
        )
    return turns.told()


def prepared(setting: Setting) -> tuple[Hybrid, float]:
    """Hybrid with all that it can learn made anew, and the seconds that this took."""
    lengths = [len(each) for each in setting.states]
    began = time.perf_counter()
    inverter = Hybrid(setting.model, **learned(setting.model, own_text(setting.tokenizer), None, 0.0, lengths, "full"))
    ended = inverter.clock.now()  # waits for the device
    print(f"preparation, once per model and cut: {ended - began:.1f} s", flush=True)
    inverter.invert(setting.states[:1])  # the first pass warms up
    return inverter, ended - began


def hybrid_figures(setting: Setting, inverter: Hybrid, preparation: float, references: int, repeats: int) -> list[str]:
    """Hybrid against SIPIT as released, alone and with its preparation shared out."""
    turns = in_turns("hybrid", setting, inverter, sipit_as_released, references, repeats)
    alone = [inverter.invert([each]) for each in setting.states[:references]]
    one_by_one = per_token(alone, sum(map(len, setting.prompts[:references])))
    print(f"  ours, too, one prompt at a time: {split_of(one_by_one)}", flush=True)
    if em(turns.ours[0].tokens[:references], setting.prompts) < em([w.tokens for w in turns.theirs], setting.prompts):
        sys.exit("hybrid recovers fewer prompts than the reference does")
    ours, theirs = sum(turns.split_of_ours.values()), sum(turns.split_of_theirs.values())
    amortised = ours + preparation / (AMORTISED * len(setting.prompts[0]))
    figures = [ratio("hybrid", ours, theirs), ratio("hybrid_amortised", amortised, theirs)]
    return [*figures, *forward_figures(setting, inverter, repeats)]


def forward_figures(setting: Setting, inverter: Hybrid, repeats: int) -> list[str]:
    """Hybrid against one forward pass of the prompts, in turns."""
    tokens, recovery = sum(map(len, setting.prompts)), inverter.invert(setting.states[:1])
    ours: list[float] = []
    forward = [seconds_of_forward(setting)]
    for _ in range(repeats):
        recovery = inverter.invert(setting.states)
        ours.append(recovery.seconds_per_token["total"])
        forward.append(seconds_of_forward(setting) / tokens)
    print(
        f"against one forward pass: EM {em(recovery.tokens, setting.prompts):.0f} %, "
        f"{recovery.verified_share:.1%} verified, {tried_per_token(recovery):.1f} tried a token",
        flush=True,
    )
    return [ratio("forward", statistics.median(ours), statistics.median(forward[1:]))]  # the first warms up


@torch.no_grad()
def seconds_of_forward(setting: Setting) -> float:
    """How long the client's part takes on all prompts, in batches."""
    ids = torch.tensor(setting.prompts, device=setting.device)
    began = time.perf_counter()
    for part in ids.split(max(ROWS // ids.shape[1], 1)):
        states = setting.model.encoder(part)
    states.sum().cpu()  # waits for the device
    return time.perf_counter() - began


def cold_figures(setting: Setting) -> list[str]:
    """One prompt with nothing prepared: what hybrid chooses to learn for it, against learning all there is."""
    own, states, prompt = own_text(setting.tokenizer), setting.states[:1], setting.prompts[:1]
    print("cold start on one prompt:", flush=True)
    began = time.perf_counter()
    prepared = learned(setting.model, own, lengths=[len(prompt[0])])
    halfway = time.perf_counter()
    recovery = Hybrid(setting.model, **prepared).invert(states)
    ours = time.perf_counter() - began
    theirs = seconds_of_whole_preparation(setting.model, own)
    print(
        f"  ours: {halfway - began:.1f} s of preparation, {ours - halfway + began:.1f} s of recovery, "
        f"EM {em(recovery.tokens, prompt):.0f} %, {recovery.verified_share:.1%} verified, "
        f"{tried_per_token(recovery):.0f} tried a token\n"
        f"  theirs: {theirs:.1f} s of preparation alone, from one in {SHARE} of its parts",
        flush=True,
    )
    return [f"ratio cold {theirs / ours:.2f} (ours {ours:.3g} s, theirs {theirs:.3g} s)"]


def single_commit_figures(setting: Setting, references: int, operating_point: str) -> list[str]:
    """Single commit against the paper's way of running it, at the same settings."""
    point = OPERATING_POINTS[operating_point]
    SingleCommit(setting.model, InnerLoop(steps=2), 2).invert(setting.states[:1])  # the first pass warms up
    name, inverter = f"single commit, {operating_point}", SingleCommit(setting.model, **point)
    turns = in_turns(name, setting, inverter, partial(single_commit_as_published, **point), references, rounds=1)
    ours, theirs = sum(turns.split_of_ours.values()), sum(turns.split_of_theirs.values())
    return [ratio("single_commit", ours, theirs)]


def ratio(name: str, ours: float, other: float) -> str:
    """The line that a figure ends in."""
    return f"ratio {name} {other / ours:.2f} (ours {ours:.3g} s/token, theirs {other:.3g} s/token)"


def growth_figures(setting: Setting, inverter: Hybrid, count: int, repeats: int) -> list[str]:
    """Hybrid's seconds per token by the length of the prompts, and single commit's beside them."""
    lengths = [length for length in LENGTHS if length <= setting.model.context]
    texts = blocks(setting.corpus.test, setting.tokenizer, lengths[-1])[:count, : lengths[-1]].tolist()
    states = leaked(setting.model, texts)
    print(f"cost growth, on how {len(texts)} blocks of the held-out text begin, {repeats} rounds:", flush=True)
    single = SingleCommit(setting.model, GROWTH_LOOP, GROWTH_CANDIDATES)
    costs: dict[int, list[float]] = {length: [] for length in lengths}
    for turn in range(repeats):
        for length in lengths:
            begun, truth = [z[:length] for z in states], [ids[:length] for ids in texts]
            before = forget_peak(setting.device)
            recovery = inverter.invert(begun)
            memory = peak_memory(setting.device)
            spent = recovery.seconds_per_token["total"]
            costs[length].append(spent)
            said = (
                f"  {length:3d} tokens: {1000 * spent:.3g} ms/token, EM {em(recovery.tokens, truth):.0f} %, "
                f"peak memory {memory / 2**20:,.0f} MiB ({(memory - before) / 2**20:,.0f} of them its own)"
            )
            if turn == 0:
                beside = single.invert(begun).seconds_per_token["total"]
                said += f"; single commit of {GROWTH_LOOP.steps} steps {1000 * beside:.3g} ms/token"
            print(said, flush=True)
    short, long = costs[lengths[0]], costs[lengths[-1]]
    flatness = statistics.median(a / b for a, b in zip(short, long, strict=True))  # within a round the machine is one
    return [
        f"ratio growth {flatness:.2f} (ours {statistics.median(long):.3g} s/token at {lengths[-1]}, "
        f"theirs {statistics.median(short):.3g} s/token at {lengths[0]})"
    ]


def forget_peak(device: torch.device) -> int:
    """The bytes held now, from which the peak counts anew; where the system cannot do that, the highest so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux
    return peak_memory(device)


def peak_memory(device: torch.device) -> int:
    """The most bytes held since `forget_peak`: on the GPU, or by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def benchmark(chosen: argparse.Namespace) -> None:
    """Run the parts that are asked for; the figures come last."""
    for name in ("prompts", "length", "reference_prompts", "growth_prompts", "repeats"):
        if getattr(chosen, name) is not None and getattr(chosen, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1; got {getattr(chosen, name)}")
    if chosen.skip < 0:
        raise UserError(f"--skip must be at least 0; got {chosen.skip}")
    began = time.perf_counter()
    setting = setting_of(chosen)
    parts = [chosen.only] if chosen.only else list(PARTS)
    wanted = {part: chosen.reference_prompts or usual for part, usual in REFERENCES.items()}
    references = {part: min(count, len(setting.prompts)) for part, count in wanted.items()}
    figures: list[str] = []
    if {"hybrid", "growth", "forward"} & set(parts):
        inverter, preparation = prepared(setting)
    if "hybrid" in parts:
        figures += hybrid_figures(setting, inverter, preparation, references["hybrid"], chosen.repeats)
    if "forward" in parts:
        figures += forward_figures(setting, inverter, chosen.repeats)
    if "single-commit" in parts:
        figures += single_commit_figures(setting, references["single-commit"], chosen.operating_point)
    if "growth" in parts:
        figures += growth_figures(setting, inverter, chosen.growth_prompts, chosen.repeats)
    if "cold" in parts:
        figures += cold_figures(setting)
    print(f"all of it took {duration(time.perf_counter() - began)}")
    print("\n".join(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a run of train.py, smollm2, or a folder; default: the vanilla gpt2-tiny")
    parser.add_argument("--layer", help="blocks before the cut, last or final; default: last, or where the run was cut")
    parser.add_argument("--text", default="pydoc", help="the corpus whose held-out documents begin as the prompts do")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--length", type=int, default=10, help="tokens in a prompt")
    parser.add_argument(
        "--reference-prompts",
        type=int,
        help="how many of the prompts theirs takes; default: 20 for hybrid, 2 for single commit",
    )
    parser.add_argument("--operating-point", choices=OPERATING_POINTS, default="baseline", help="of single commit")
    parser.add_argument("--growth-prompts", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3, help="rounds of hybrid, and of growth")
    parser.add_argument("--skip", type=int, default=0, help="leave the first so many prompts out")
    parser.add_argument("--only", choices=ALONE)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="checkpoints", help="where the default run is, or is put")
    chosen = parser.parse_args()
    return run_command(lambda: benchmark(chosen))


if __name__ == "__main__":
    sys.exit(main())
