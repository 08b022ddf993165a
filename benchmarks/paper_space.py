"""The paper's white box (SGD, step 10) in the two spaces that its step size could be meant for, on saved runs.

On what the network sees, the standardised image, as `whitebox/paper` does it; and in pixels of [0, 1]. Mean SSIM of
100 test images, the median residual, and for how many the descent overflowed and began again with a smaller step:

    python benchmarks/paper_space.py checkpoints/mnist-lenet-vanilla-* checkpoints/mnist-lenet-mixcon-*
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor

from sweetspot.attacks import Victim
from sweetspot.attacks.descent import Descent, squared_error
from sweetspot.attacks.whitebox import PAPER_GREY, PAPER_STEPS, network_coordinates
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.images import data_of
from sweetspot.metrics.similarity import ssim
from sweetspot.runs.folder import Run


def descended(victim: Victim, z: Tensor, into_input: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, int]:
    """The recovered images, their residuals, and how many descents overflowed."""
    starts = torch.zeros(1, len(z), *victim.shape)
    ones = torch.ones_like(z[0])
    misfit = squared_error(lambda s: victim.represent(into_input(s)))
    descent = Descent(misfit, z, [PAPER_GREY], starts, ones)
    descent.run(PAPER_STEPS, "paper")
    s, residual = descent.ended(at_the_last=True)
    return into_input(s[0]), residual[0], int((descent.lr < PAPER_GREY.lr).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--data-root", default=None)
    chosen = parser.parse_args()
    for folder in chosen.runs:
        run = Run(folder)
        victim = Victim.from_checkpoint(run.checkpoint)
        data = data_of(run.read_results(), victim, chosen.data_root, None)
        x = scaled(data.test[0][data.sample_of_tests(chosen.images)])
        with torch.no_grad():
            z = victim.represent(x)
        for space, into_input in (("standardised", network_coordinates(victim)), ("pixels", lambda s: s)):
            recovered, residual, overflowed = descended(victim, z, into_input)
            print(
                f"{run.name}  {space:12}  SSIM {ssim(recovered, x).mean():.3f}  residual {residual.median():.3f}  "
                f"overflowed {overflowed} of {len(x)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
