"""What MixCon's paper leaves open about its white box, tried in every combination, on saved runs.

The recipe is SGD with a step of 10, 500 iterations, weight decay 1e-4 and total variation 1e-5. Not said are

- the loss ℓ2: the mean of the squared differences, their sum, or its root;
- the space that the step is taken in: pixels of [0, 1], or the standardised image that the network sees;
- the start: zeros, or random numbers;
- what "SSIM normalised to [0, 1]" means: clipped images, or each one stretched to [0, 1] by its own extremes.

Mean SSIM of 100 test images in each reading, and on how many the descent overflowed and stays where it last was finite:

    python benchmarks/paper_readings.py checkpoints/mnist-lenet-vanilla-* checkpoints/mnist-lenet-mixcon-*
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor

from sweetspot.attacks import Victim
from sweetspot.attacks.descent import total_variation
from sweetspot.attacks.whitebox import PAPER_GREY, PAPER_STEPS, network_coordinates
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.images import data_of
from sweetspot.metrics.similarity import ssim
from sweetspot.runs.folder import Run

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda difference: difference.square().mean(dim=1),
    "sum": lambda difference: difference.square().sum(dim=1),
    "root": lambda difference: (difference.square().sum(dim=1) + 1e-12).sqrt(),
}
STARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "random": lambda x: torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x),
}


def descended(
    victim: Victim, into_input: Callable[[Tensor], Tensor], z: Tensor, s: Tensor, loss: str
) -> tuple[Tensor, Tensor]:
    """Where plain SGD ends for each image, (B, …), and which of them overflowed on the way, (B,)."""
    stopped = torch.zeros(len(s), dtype=torch.bool, device=s.device)
    for _ in range(PAPER_STEPS):
        s = s.detach().requires_grad_(True)
        misfit = LOSSES[loss](victim.represent(into_input(s)).flatten(1) - z) + PAPER_GREY.tv * total_variation(s)
        (gradient,) = torch.autograd.grad(misfit.sum(), s)
        step = PAPER_GREY.lr * (gradient + PAPER_GREY.weight_decay * s.detach())
        stopped |= ~(s.detach() - step).flatten(1).isfinite().all(dim=1)
        s = torch.where(stopped.view(-1, *[1] * (s.dim() - 1)), s.detach(), s.detach() - step)
    return s.detach(), stopped


def stretched(x: Tensor) -> Tensor:
    """Each image with its smallest entry at 0 and its largest at 1."""
    least, most = x.flatten(1).amin(dim=1), x.flatten(1).amax(dim=1)
    return (x - least.view(-1, 1, 1, 1)) / (most - least).clamp_min(1e-12).view(-1, 1, 1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--data-root", default=None)
    chosen = parser.parse_args()
    print("loss  space         start   SSIM clipped  SSIM stretched  overflowed  run")
    for folder in chosen.runs:
        run = Run(folder)
        victim = Victim.from_checkpoint(run.checkpoint)
        data = data_of(run.read_results(), victim, chosen.data_root, None)
        x = scaled(data.test[0][data.sample_of_tests(chosen.images)])
        with torch.no_grad():
            z = victim.represent(x).flatten(1)
        spaces = {"standardised": network_coordinates(victim), "pixels": lambda s: s}
        for loss, (space, into_input), start in itertools.product(LOSSES, spaces.items(), STARTS):
            s, stopped = descended(victim, into_input, z, STARTS[start](x), loss)
            recovered = into_input(s)
            clipped, own = (ssim(each, x).mean() for each in (recovered.clamp(0, 1), stretched(recovered)))
            print(
                f"{loss:4}  {space:12}  {start:6}  {clipped:12.3f}  {own:14.3f}  {int(stopped.sum()):10}  {run.name}",
                flush=True,
            )


if __name__ == "__main__":
    main()
