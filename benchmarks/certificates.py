"""How fast certificates are: galleries, inputs and probes all at once against the obvious loop over them, in one run.

    python benchmarks/certificates.py                      # 2,000 made-up representations of 400 numbers, 10 classes
    python benchmarks/certificates.py --inputs 1000 --width 64 --repeats 7

`ratio NAME X.XX` is the loop's time over ours, the median over rounds. A loop is timed on some of the galleries, trials
or inputs and scaled up to all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from sweetspot.lightning_modules.networks import build_network
from sweetspot.metrics.certificates import GALLERY, PROBES, TRIALS, leak_nats, mean_reid_bound, reid_bayes, unbiased_mse

SIGMA, CLASSES = 8.0, 10
TIMED = 20  # galleries, or inputs, that a loop is timed on; of trials as many as ten galleries have


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def bound_by_loop(h: Tensor) -> float:
    """The bound of one gallery (N, d), by scipy's root finder."""
    a = np.linalg.norm((h - h.mean(dim=0)).numpy(), axis=1) / SIGMA
    even = -a * (norm.ppf(1 / len(a)) + a / 2)
    mu = brentq(lambda mu: norm.cdf(-mu / a - a / 2).sum() - 1, even.min() - 1, even.max() + 1)
    return float(norm.cdf(-mu / a + a / 2).mean())


def bayes_by_loop(h: Tensor, trials: int) -> float:
    """Trials one after the other in one gallery (N, d)."""
    hits = 0
    for trial in range(trials):
        true = trial % len(h)
        z = h[true] + SIGMA * torch.randn(h.shape[1], dtype=h.dtype)
        hits += int((z - h).square().sum(dim=1).argmin()) == true
    return hits / trials


def nats_by_loop(h: Tensor, y: Tensor) -> float:
    """The log determinants (d, d) of all classes."""
    total = 0.0
    for c in range(CLASSES):
        covariance = torch.cov(h[y == c].T, correction=0)
        total += 0.5 * float(torch.linalg.slogdet(torch.eye(len(covariance)) + covariance / SIGMA**2)[1])
    return total / CLASSES


def mse_by_loop(encoder: torch.nn.Module, x: Tensor) -> float:
    """The whole Jacobian of one input after the other."""
    found = []
    for each in x:
        jacobian = torch.autograd.functional.jacobian(lambda v: encoder(v[None])[0].flatten(), each)
        found.append(each.numel() * SIGMA**2 / float(jacobian.square().sum()))
    return statistics.fmean(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    h, y = torch.randn(chosen.inputs, chosen.width, dtype=torch.float64), torch.arange(chosen.inputs) % CLASSES
    gallery, galleries = h[y == 0][:GALLERY], TRIALS // GALLERY
    encoder = build_network("lenet", (1, 28, 28), CLASSES, 2).encoder.eval().requires_grad_(False)
    x = torch.rand(100, 1, 28, 28)
    names: dict[str, tuple[Callable[[], object], Callable[[], object], float]] = {
        "reid_bound": (
            lambda: mean_reid_bound(h, y, SIGMA),
            lambda: [bound_by_loop(gallery) for _ in range(TIMED)],
            galleries / TIMED,
        ),
        "reid_bayes": (lambda: reid_bayes(h, y, SIGMA), lambda: bayes_by_loop(gallery, 10 * GALLERY), galleries / 10),
        "leak_nats": (lambda: leak_nats(h, y, SIGMA), lambda: nats_by_loop(h, y), 1.0),
        "unbiased_mse": (
            lambda: unbiased_mse(encoder, x, SIGMA, PROBES),
            lambda: mse_by_loop(encoder, x[:TIMED]),
            len(x) / TIMED,
        ),
    }
    print(f"{TRIALS:,} trials in galleries of {GALLERY}, {torch.get_num_threads()} threads, {chosen.repeats} rounds")
    for name, (batched, loop, scale) in names.items():
        batched(), loop()  # the first ones warm up
        rounds = [(seconds(batched), scale * seconds(loop)) for _ in range(chosen.repeats)]
        ratio = statistics.median(theirs / ours for ours, theirs in rounds)
        ours, theirs = (1000 * statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"ratio {name} {ratio:.2f} (ours {ours:.0f} ms, theirs {theirs:.0f} ms)", flush=True)


if __name__ == "__main__":
    main()
