"""What starting the white box from the decoder's answer is worth: mean SSIM of each alone, and of the chain.

    python benchmarks/refined.py checkpoints/mnist-lenet-vanilla-s0-* --samples 100
    python benchmarks/refined.py RUN … --train-images   # for tuning: training images that the attacker does not get

The runs are only read. Trained decoders are kept in --cache, if one is given; a run's own folder will do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from torch import Tensor

from sweetspot.attacks import Attack, AttackerData, Decoder, Positions, Refined, Victim, WhiteBox
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.case import CLIENT
from sweetspot.evaluations.images import data_of
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.metrics.similarity import ssim
from sweetspot.runs.choices import BUDGETS
from sweetspot.runs.environment import pick_device, reproducible
from sweetspot.runs.folder import Run


def divided(data: TensorDataModule, samples: int, of_training: bool) -> tuple[Tensor, AttackerData]:
    """The images that are attacked, and what the attacker has of its own."""
    x, y = data.train
    if not of_training:
        return scaled(data.test[0][data.sample_of_tests(samples)]), AttackerData(x, y)
    attacked = torch.zeros(len(y), dtype=torch.bool)
    attacked[torch.linspace(0, len(y) - 1, samples).long()] = True
    return scaled(x[attacked]), AttackerData(x[~attacked], y[~attacked])


def measured(run: Run, chosen: argparse.Namespace, cache: Path) -> dict[str, Tensor]:
    """SSIM of every image (B,) by attack."""
    device, seed = pick_device("auto"), chosen.seed
    victim = Victim.from_checkpoint(run.checkpoint).to(device)
    data = data_of(run.read_results(), victim, chosen.data_root, None)
    x, own = divided(data, chosen.samples, chosen.train_images)
    with torch.no_grad(), draws_from(CLIENT + seed, device):
        z = victim.released(x.to(device))
    attacks: list[Attack] = [
        WhiteBox("adaptive", chosen.budget, seed),
        Decoder("adaptive", chosen.budget, seed, cache),
        Positions(None, chosen.budget, seed, cache),
        Refined(None, chosen.budget, seed, cache),
    ]
    scores: dict[str, Tensor] = {}
    for attack in attacks:
        if attack.fits(victim):
            with draws_from(seed, device):
                attack.prepare(victim, own)
                scores[attack.key] = ssim(attack.reconstruct(victim, z).x.cpu(), x)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--budget", choices=BUDGETS, default="normal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--train-images", action="store_true", help="attack training images, held out from the attacker"
    )
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--cache", type=Path, default=None, help="a folder for trained decoders")
    chosen = parser.parse_args()
    reproducible()
    for folder in chosen.runs:
        with tempfile.TemporaryDirectory() as temporary:
            cache = chosen.cache or Path(temporary)
            cache.mkdir(parents=True, exist_ok=True)
            scores = measured(Run(folder), chosen, cache)
        print(folder.name)
        for key, each in scores.items():
            print(f"  {key:18} SSIM {each.mean():.4f} ± {each.std(correction=0):.3f}, from {each.min():.3f}")
        alone = max(scores["whitebox/adaptive"].mean(), scores["decoder/adaptive"].mean())
        print(f"  refined {scores['refined'].mean() - alone:+.4f} to the better of white box and decoder", flush=True)


if __name__ == "__main__":
    main()
