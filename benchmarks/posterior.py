"""How a beam over prefixes reads noisy states, against the greedy text, on the same states and in one process.

    python benchmarks/posterior.py --model checkpoints/pydoc-gpt2-tiny-vanilla-… --noise 1 --prompts 100

Prints EM, similarity and time of each, what is right behind the true prefix, and ends with a `ratio` line: the time of
a beam of 1 over that of the beam.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from sweetspot.attacks.text.channel import Channel
from sweetspot.attacks.text.posterior import Posterior, bayes_given_prefix
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.evaluations.text import TextCase, scores_of, whole
from sweetspot.runs.folder import Run

REPEATS = 3  # of each, taking turns; the fastest counts: others use the machine, too


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a text run of train.py")
    parser.add_argument("--noise", type=float, default=1.0, help="in units of the states' root mean square")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--bayes", type=int, default=20, help="prompts whose every token is tried")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = Run(Path(options.model))
    case = TextCase.of(run, run.read_results(), options.prompts, None, torch.device("cpu"))
    leaked, noise = case.through(Channel(noise=options.noise, unit=case.unit), seed=0)
    truth = case.truth.tolist()
    inverters = {beam: case.hybrid(noise, beam, seed=0) for beam in (1, options.beam)}
    best: dict[int, float] = {}
    found: dict[int, Recovery] = {}
    for _ in range(REPEATS):
        for beam, inverter in inverters.items():
            began = time.perf_counter()
            found[beam] = whole(inverter.invert(leaked), truth)
            best[beam] = min(best.get(beam, float("inf")), time.perf_counter() - began)
    for beam, recovery in found.items():
        scores = scores_of(recovery.tokens, truth, case.tokenizer)
        figures = ", ".join(f"{name} {scores[name]['mean']:.4f}" for name in ("em", "token_accuracy", "similarity"))
        tried = sum(map(sum, recovery.tried)) / sum(map(len, recovery.tried))
        print(f"beam {beam}: {figures}, {best[beam]:.2f} s, {tried:.0f} tokens tried a position", flush=True)
    few = case.truth[: options.bayes]
    wide = inverters[options.beam]
    assert isinstance(wide, Posterior)
    (right,) = bayes_given_prefix([wide], [leaked[: len(few)]], few)
    alike = {beam: torch.tensor(each.tokens[: len(few)]) == few for beam, each in found.items()}
    told = ", ".join(f"beam {beam} {each.float().mean():.4f}" for beam, each in alike.items())
    print(f"tokens right of the first {len(few)} prompts: bayes {right.float().mean():.4f}, {told}", flush=True)
    print(f"ratio beam {best[1] / best[options.beam]:.2f} (ours {best[options.beam]:.2f} s, theirs {best[1]:.2f} s)")


if __name__ == "__main__":
    main()
