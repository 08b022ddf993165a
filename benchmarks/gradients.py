"""How fast a batch comes out of a gradient, and what the paper's figures look like here.

    python benchmarks/gradients.py                     # time against d and m, and against plain gradient matching
    python benchmarks/gradients.py --figure2           # error against d and m, from ∇_a and ∇_W: Figure 2
    python benchmarks/gradients.py --figure3           # pairs of digits, same and different labels: Figure 3
    python benchmarks/gradients.py --table-b           # the largest batch that comes back
    python benchmarks/gradients.py --noise             # the client's defences: noise, clipping, pruning
    python benchmarks/gradients.py --deep              # depth 2 to 6

An option replaces the timing; with --out DIR its pictures go there. Gradient matching (DLG) gets the same gradient and
weights, double precision and L-BFGS. It runs plain, from x ~ N(0, I) on the sum of squared differences, and helped:
from unit vectors, which is the true norm, with both parts of the gradient at equal weight.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation, as_activation
from sweetspot.attacks.gradients.federated import Gradient, Weights, chosen_weights, client_gradient, output
from sweetspot.attacks.gradients.reconstruct import reconstruct
from sweetspot.errors import UserError
from sweetspot.evaluations.gradient_config import GradientConfig
from sweetspot.evaluations.gradients import invert_gradient
from sweetspot.metrics.gradients import batch_score
from sweetspot.progress import steps_shown
from sweetspot.reports.gradient_figures import (
    dimension_figure,
    samples_figure,
    slope,
    sources_figure,
    width_figure,
)

DIM, WIDTH = 400, 5000  # what is doubled
DIMENSION = 50  # of the comparison
DIMS = (10, 20, 50, 100, 150, 200)
WIDTHS = (2000, 4000, 8000, 16000, 32000)
BATCHES = (2, 4, 8, 12, 16, 24, 32, 48, 64)
PATIENCE = 20.0  # seconds after which no larger batch is tried
SOLVED = 1e-6  # a relative error of the inputs
DEEP = ("relu", "leaky-relu", "tanh", "sigmoid")
Points = dict[str, list[tuple[float, float]]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that a README can take."""
    print("| " + " | ".join(head) + " |", "|" + "---|" * len(head), sep="\n")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def play(dim: int, width: int, sigma: Activation, batch: int = 2) -> tuple[Tensor, Tensor, Weights, Gradient]:
    """A round: unit vectors that are not orthogonal, labels ±1, weights and the gradient."""
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, y = x / x.norm(dim=1, keepdim=True), torch.where(torch.arange(batch) % 2 == 0, 1.0, -1.0).double()
    weights = chosen_weights(dim, width, seed=1)
    return x, y, weights, client_gradient(x, y, weights, sigma)


def ours(dim: int, width: int, sigma: Activation, batch: int = 2) -> tuple[float, float]:
    """Seconds of one reconstruction, and the largest relative error of an input."""
    x, y, weights, gradient = play(dim, width, sigma, batch)
    began = time.perf_counter()
    recovered = reconstruct(gradient, weights, sigma, len(x))
    seconds = time.perf_counter() - began
    score = batch_score(recovered.x, recovered.y, x, y, up_to_sign=sigma.is_odd, up_to_scale=sigma.is_homogeneous)
    return seconds, float(score.error.max())


@dataclass(frozen=True)
class Matching:
    """What gradient matching did.

    Args:
        way: plain or helped.
        seconds: of a start.
        missed: the largest relative error of an input, for each start.
    """

    way: str
    seconds: float
    missed: list[float]

    @property
    def solved(self) -> int:
        """How many starts ended at the true batch."""
        return sum(error <= SOLVED for error in self.missed)

    def expected(self) -> float:
        """Seconds until a start succeeds; infinite where none did."""
        return self.seconds * len(self.missed) / self.solved if self.solved else math.inf


def matched(
    gradient: Gradient, weights: Weights, sigma: Activation, batch: int, seed: int, steps: int, helped: bool
) -> Tensor:
    """The samples (B, d) at which gradient matching ends, as DLG does it, from a random start."""
    start = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, weights.w.shape[1], generator=start, dtype=torch.float64)
    x = (x / x.norm(dim=1, keepdim=True) if helped else x).requires_grad_(True)
    y = torch.randn(batch, generator=start, dtype=torch.float64).requires_grad_(True)
    scale = [part.square().sum() if helped else 1.0 for part in (gradient.a, gradient.w)]
    w, a = weights.w.clone().requires_grad_(True), weights.a.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([x, y], max_iter=steps, history_size=30, line_search_fn="strong_wolfe",
                                  tolerance_grad=0.0, tolerance_change=0.0)  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = (output(x, Weights(w, a, weights.bias), sigma) - y).square().sum() / 2
        of_a, of_w = torch.autograd.grad(loss, (a, w), create_graph=True)
        miss: Tensor = (of_a - gradient.a).square().sum() / scale[0]
        miss = miss + (of_w - gradient.w).square().sum() / scale[1]
        x.grad, y.grad = torch.autograd.grad(miss, (x, y))
        return miss.detach()

    optimiser.step(closure)
    found: Tensor = x.detach()
    return found


def dlg(name: str, batch: int, steps: int, starts: int, helped: bool) -> Matching:
    """How gradient matching does on a problem."""
    sigma = as_activation(name)
    x, y, weights, gradient = play(DIMENSION, WIDTH, sigma, batch)
    began, missed = time.perf_counter(), []
    for seed in range(starts):
        found = matched(gradient, weights, sigma, batch, seed, steps, helped)
        score = batch_score(found, y, x, y, up_to_sign=sigma.is_odd, up_to_scale=sigma.is_homogeneous)
        missed.append(float(score.error.max()))
    return Matching("helped" if helped else "plain", (time.perf_counter() - began) / starts, missed)


def timed(repeats: int) -> None:
    """Print time against d and m."""
    print(f"B = 2, square-cubic, {torch.get_num_threads()} threads, the fastest of {repeats} rounds")
    sigma = as_activation("square-cubic")
    ours(DIM, WIDTH, sigma)  # the first one warms up
    sizes = {"once": (DIM, WIDTH), "linear_d": (2 * DIM, WIDTH), "linear_m": (DIM, 2 * WIDTH)}
    spent: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(repeats):  # in turn, so that a busy machine is fair to all
        for name, (dim, width) in sizes.items():
            seconds, error = ours(dim, width, sigma)
            spent[name].append(seconds)
            if error > SOLVED:
                sys.exit(f"d = {dim}, m = {width}: an error of {error:.1e} is not exact")
    once = min(spent["once"])
    for name in ("linear_d", "linear_m"):
        (dim, width), doubled = sizes[name], min(spent[name])
        says = f"{once:.3f} s at d = {DIM}, m = {WIDTH}; {doubled:.3f} s at d = {dim}, m = {width}"
        print(f"ratio {name} {doubled / (2 * once):.2f} (doubled size by twice the time; {says})", flush=True)


def against_matching(repeats: int, steps: int, starts: int) -> None:
    """Print ours beside gradient matching, on small and larger batches; of its two ways the better one counts."""
    print(f"against gradient matching at d = {DIMENSION}, m = {WIDTH}: {starts} starts of at most {steps} steps")
    ratios = []
    for batch in (2, 8):
        for name in ("square-cubic", "tanh", "relu"):
            mine, error = min(ours(DIMENSION, WIDTH, as_activation(name), batch) for _ in range(repeats))
            theirs = min((dlg(name, batch, steps, starts, helped) for helped in (False, True)), key=Matching.expected)
            ratios.append(theirs.expected() / mine)
            print(
                f"  B = {batch}, {name}: ours {mine:.3f} s, error {error:.0e}; {theirs.way} matching "
                f"{theirs.seconds:.2f} s a start, {theirs.solved} of {starts} solved, "
                f"median error {statistics.median(theirs.missed):.0e}: {ratios[-1]:.1f}×",
                flush=True,
            )
    failed = sum(math.isinf(ratio) for ratio in ratios)
    print(
        f"ratio dlg {statistics.median(ratios):.2f} (median of {len(ratios)} problems: theirs by ours, at one error; "
        f"least {min(ratios):.1f}; {failed} that matching never solved)"
    )


def errors(**flags: Any) -> dict[str, Any]:
    """The results of `invert.py gradient` with these flags."""
    return invert_gradient(GradientConfig(device="cpu", **flags))


def mean_errors(across: str, values: Sequence[int], seeds: int, **flags: Any) -> tuple[Points, float]:
    """The rms error of both stages against a flag, over seeds, and the largest label error of the polished one."""
    points: Points = {"tensor": [], "polished": []}
    labels = 0.0
    for value in values:
        runs = [errors(seed=seed, **{across: value}, **flags)["recovered"] for seed in range(seeds)]
        for stage, line in points.items():
            line.append((value, math.sqrt(statistics.mean(run[stage]["rms"] ** 2 for run in runs))))
        labels = max(labels, *(max(run["polished"]["label_error"]) for run in runs))
    return points, labels


def figure2(out: Path | None, seeds: int) -> None:
    """Print and draw the error against d, from ∇_a and from ∇_W, and against m."""
    settings = [(name, source) for name in ("square-cubic", "tanh", "sigmoid") for source in ("a", "w")]
    lines: Points = {}
    widths: Points = {}
    print(
        f"m = {WIDTH}, B = 2, x_i = e_i, bias 30, {seeds} seeds, the paper's subspace; rms error, then the polished one"
    )
    with steps_shown("figure 2", len(settings) + 4) as done:
        for number, (name, source) in enumerate(settings):
            found, _ = mean_errors("dim", DIMS, seeds, activation=name, source=source, subspace="moment")
            lines[f"{name}, ∇_{source.upper() if source == 'w' else source}"] = found["tensor"]
            lines[f"{name}, polished"] = found["polished"]
            done(number + 1)
        for number, name in enumerate(("square-cubic", "tanh", "sigmoid", "relu")):
            found, _ = mean_errors("width", WIDTHS, seeds, activation=name, subspace="moment")
            widths[name] = found["tensor"]
            done(len(settings) + number + 1)
    table(
        ["error against d", *map(str, DIMS)], [[name, *(f"{e:.2g}" for _, e in line)] for name, line in lines.items()]
    )
    rows = [[name, *(f"{e:.2g}" for _, e in line), f"{slope(line):.3f}"] for name, line in widths.items()]
    table(["error against m, d = 50", *map(str, WIDTHS), "slope"], rows)
    if out is not None:
        cubic = {name.split(", ")[1]: line for name, line in lines.items() if name.startswith("square-cubic, ∇")}
        sources_figure(cubic, out / "sources.png", f"x² + x³, m = {WIDTH}, B = 2")
        shown = {name: line for name, line in lines.items() if "∇_a" not in name}
        dimension_figure(shown, out / "error_d.png", f"m = {WIDTH}, B = 2")
        width_figure(widths, out / "error_m.png", "d = 50, B = 2")


def figure3(out: Path | None, seeds: int, dataset: str) -> None:
    """Print and draw pairs of digits."""
    rows = []
    for same in (True, False):
        for width in (1000, 5000, 20000):
            runs = [
                errors(dataset=dataset, same_label=same, width=width, activation="square-cubic", seed=seed)
                for seed in range(seeds)
            ]
            stages = {stage: [run["recovered"][stage]["worst"] for run in runs] for stage in ("tensor", "polished")}
            labels = max(max(run["recovered"]["polished"]["label_error"]) for run in runs)
            cells = [f"{statistics.mean(stages['tensor']):.3f}", f"{max(stages['polished']):.0e}", f"{labels:.0e}"]
            seconds = statistics.median(run["seconds"]["attack"] for run in runs)
            rows.append(["same" if same else "different", str(width), *cells, f"{seconds:.1f} s"])
            if out is not None and width == WIDTH:
                draw_pair(runs[0], out / f"pair_{'same' if same else 'different'}.png")
    print(f"{dataset}, d = 784, B = 2, square-cubic, {seeds} pairs each: mean tensor error, largest polished error")
    table(["labels", "m", "tensor only", "polished", "label error", "time"], rows)


def draw_pair(results: Mapping[str, Any], path: Path) -> None:
    """The originals, the tensor stage and the polished pair."""
    stages = {name: torch.tensor(results["recovered"][name]["x"]) for name in ("tensor", "polished")}
    samples_figure(stages, path, torch.tensor(results["truth"]["x"]), results["data"]["shape"])


def largest_batch(dim: int, name: str, dataset: str) -> tuple[int, float, str]:
    """The largest B of the list that comes back, its seconds, and why none larger was tried."""
    best, seconds = 0, 0.0
    flags: dict[str, Any] = {"dataset": dataset} if dim == 784 else {"dim": dim, "inputs": "sphere"}
    for batch in [b for b in BATCHES if b <= dim]:
        try:
            results = errors(activation=name, batch=batch, **flags)
        except UserError as error:
            return best, seconds, str(error)
        polished = results["recovered"]["polished"]
        if not (polished["worst"] <= SOLVED and polished["labels_right"] == 1):
            return best, seconds, f"fails at {batch}"
        best, seconds = batch, results["seconds"]["attack"]
        if seconds > PATIENCE:
            return best, seconds, "time"
    return best, seconds, "end of the list"


def table_b(names: Sequence[str], dataset: str) -> None:
    """Print the largest batch that comes back exactly."""
    print(f"m = {WIDTH}; B tried: {', '.join(map(str, BATCHES))}; inputs within {SOLVED:.0e} and all labels right")
    rows = []
    for name in names:
        rows.append([name])
        for dim in (50, 200, 784):
            best, seconds, why = largest_batch(dim, name, dataset)
            rows[-1].append(f"{best} ({seconds:.1f} s; {why})")
            print(f"  {name}, d = {dim}: {rows[-1][-1]}", flush=True)
    table(["activation", "d = 50", "d = 200", f"d = 784 ({dataset})"], rows)


def defences(names: Sequence[str]) -> None:
    """Print what noise, clipping and pruning leave of a batch."""
    levels: list[tuple[str, float]] = [("noise", n) for n in (0.0, 1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0)]
    levels += [("clip", c) for c in (1.0, 1e-3)] + [("prune", p) for p in (0.5, 0.9, 0.99, 0.999)]
    rows = []
    for kind, level in levels:
        cells = []
        for name in names:
            try:
                results = errors(activation=name, inputs="sphere", **{kind: level})
            except UserError as error:
                cells.append(f"refused ({str(error).partition(':')[0]})")
                continue
            both = [results["recovered"][stage] for stage in ("tensor", "polished")]
            right = f"{100 * both[1]['labels_right']:.0f} %"
            cells.append(f"{both[0]['rms']:.2g} → {both[1]['rms']:.1g}, {right}, {results['verdict']}")
        rows.append([f"{kind} {level:g}", *cells])
    print(f"m = {WIDTH}, d = 50, B = 2: rms error of the tensor stage → polished, labels right, verdict")
    table(["defence", *names], rows)


def deep() -> None:
    """Print the errors of deep networks."""
    rows = []
    for name in DEEP:
        cells = []
        for depth in range(2, 7):
            recovered = errors(activation=name, depth=depth, inputs="sphere")["recovered"]
            cells.append(f"{recovered['tensor']['rms']:.2g} → {recovered['polished']['rms']:.0e}")
        rows.append([name, *cells])
    print(f"m = {WIDTH}, d = 50, B = 2: rms error of the tensor stage → polished")
    table(["activation", *(f"{depth} layers" for depth in range(2, 7))], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("figure2", "figure3", "table-b", "noise", "deep"):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder for the pictures")
    parser.add_argument("--seeds", type=int, default=3, help="of the figures")
    parser.add_argument("--dataset", default="mnist-5k", help="of figure 3 and of table B")
    parser.add_argument("--activations", nargs="+", default=["square-cubic", "tanh", "relu"], help="of the tables")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of a start of gradient matching")
    parser.add_argument("--starts", type=int, default=4, help="of gradient matching")
    chosen = parser.parse_args()
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.figure2:
        figure2(chosen.out, chosen.seeds)
    if chosen.figure3:
        figure3(chosen.out, chosen.seeds, chosen.dataset)
    if chosen.table_b:
        table_b(chosen.activations, chosen.dataset)
    if chosen.noise:
        defences(chosen.activations)
    if chosen.deep:
        deep()
    if not (chosen.figure2 or chosen.figure3 or chosen.table_b or chosen.noise or chosen.deep):
        timed(chosen.repeats)
        against_matching(chosen.repeats, chosen.steps, chosen.starts)


if __name__ == "__main__":
    main()
