"""What each candidate of the white box is worth: how attackers are tuned, on networks and images that no table reports.

Images are taken from the *training* split of the runs that are named; give runs of other seeds and strengths than those
whose figures are published. Every candidate's SSIM, and what the choice without ground truth makes of those of the
normal budget. Runs that are given together must all have noise on what they release, or none:

    python benchmarks/candidates.py checkpoints/mnist-lenet-vanilla-s7-* --recipe no-data --data-root data
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import Tensor

import sweetspot.attacks.whitebox as whitebox
from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.descent import Candidate
from sweetspot.attacks.whitebox import WhiteBox, best_explanation, candidates_of, explained
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.images import data_of
from sweetspot.metrics.similarity import ssim
from sweetspot.runs.folder import Run

GRID = {  # what one candidate is varied in, the rest as in the first of the recipe
    "lr": (0.03, 0.1, 0.3, 1.0),
    "tv": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "tv_end": (1e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4),
    "leak": (0.0, 0.3, 0.6, 1.0),
}


def variants(recipe: str, vary: bool, victim: Victim) -> tuple[list[Candidate], int]:
    """The recipe's own candidates, and, to look further, its first with one thing changed; how many are usual."""
    usual, own = (candidates_of(recipe, each, victim.shape, victim.noise > 0) for each in ("normal", "thorough"))
    changes: list[dict[str, Any]] = [{name: value} for name, values in GRID.items() for value in values]
    varied = [dataclasses.replace(own[0], **change) for change in changes]
    return list(dict.fromkeys([*usual, *own, *(varied if vary else [])])), len(usual)


def attacked(
    run: Run, recipe: str, vary: bool, images: int, root: str | None
) -> tuple[list[Candidate], Tensor, Tensor, Tensor, Tensor]:
    """What was tried on training images, its SSIM and residual (K, B), and SSIM of the chosen and of the best (B,)."""
    results = run.read_results()
    victim = Victim.from_checkpoint(run.checkpoint)
    data: TensorDataModule = data_of(results, victim, root, None)
    x = scaled(data.train[0][torch.linspace(0, len(data.train[1]) - 1, images).long()])
    with torch.no_grad():
        z = victim.released(x)
    found, residuals = [], []
    tried, usual = variants(recipe, vary, victim)
    attack = WhiteBox(recipe)
    for candidate in tried:
        whitebox.candidates_of = lambda *_, one=candidate: [one]
        attack = WhiteBox(recipe)
        attack.prepare(victim, AttackerData.of(data))
        reconstruction = attack.reconstruct(victim, z)
        found.append(reconstruction.x)
        residuals.append(reconstruction.residual)
    scores = torch.stack([ssim(each, x) for each in found])
    typical = attack.variation if victim.noise > 0 else None
    choice = best_explanation(
        torch.stack(found[:usual]), torch.stack(residuals[:usual]), None, explained(victim, z.flatten(1)), typical
    )
    chosen = scores[choice, torch.arange(len(x))]
    return tried, scores, torch.stack(residuals), chosen, scores[:usual].amax(dim=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--recipe", choices=["adaptive", "no-data"], default="adaptive")
    parser.add_argument("--vary", action="store_true", help="the first candidate with one thing changed, too")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--data-root", default=None)
    chosen = parser.parse_args()
    tables = [attacked(Run(run), chosen.recipe, chosen.vary, chosen.images, chosen.data_root) for run in chosen.runs]
    for place, candidate in enumerate(tables[0][0]):
        each = "  ".join(
            f"{scores[place].mean():.3f} ({residual[place].median():.3f})" for _, scores, residual, *_ in tables
        )
        print(f"{each}  {candidate}")
    print("  ".join(f"{taken.mean():.3f}        " for *_, taken, _ in tables), " chosen among the usual ones")
    print("  ".join(f"{best.mean():.3f}        " for *_, best in tables), " the best of them, with hindsight")


if __name__ == "__main__":
    main()
