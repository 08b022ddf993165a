"""How fast the white box is: all images in one tensor against one at a time, and what scoring adds.

    python benchmarks/whitebox.py                    # the embedded digits
    python benchmarks/whitebox.py --images 100 --steps 100 --repeats 1

Both ways take the same steps from the same starts to the same images. The victim is LeNet5, cut after its 2nd block,
as initialised: how long a step takes does not depend on what was learned.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from torch import Tensor

import sweetspot.attacks.whitebox as whitebox
from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.whitebox import STEPS, TRIED, WhiteBox
from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.assets import AssetError
from sweetspot.datamodules.tensors import scaled
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.metrics.perceptual import perceptual_network
from sweetspot.metrics.scoring import Scorer

ROUNDING = 1e-3  # floats summed in another order, over many steps


def attacked(attack: WhiteBox, victim: Victim, z: Tensor) -> tuple[Tensor, float]:
    """What comes back, and in how many seconds."""
    began = time.perf_counter()
    recovered = attack.reconstruct(victim, z).x
    if recovered.device.type == "cuda":
        torch.cuda.synchronize()
    return recovered, time.perf_counter() - began


def one_at_a_time(attack: WhiteBox, victim: Victim, z: Tensor) -> tuple[Tensor, float]:
    """The same by a loop over the images."""
    began = time.perf_counter()
    recovered = torch.cat([attack.reconstruct(victim, one).x for one in z.split(1)])
    return recovered, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200, help="of the paper's recipe, both ways")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    data = TensorDataModule(load("mnist-5k", Path("data")), 100)
    torch.manual_seed(0)
    victim = Victim.from_module(SplitModule("lenet", list(data.shape), data.classes, pixels=data.pixels()))
    sample = data.sample_of_tests(chosen.images)
    x = scaled(data.test[0][sample])
    with torch.no_grad():
        z = victim.encoder(x)
    print(f"{len(x)} images, {chosen.steps} steps, {torch.get_num_threads()} threads, {chosen.repeats} rounds")
    whitebox.PAPER_STEPS = chosen.steps
    attack = WhiteBox("paper")
    ours: list[float] = []
    theirs: list[float] = []
    for repeat in range(chosen.repeats):
        together, seconds = attacked(attack, victim, z)
        ours.append(seconds)
        alone, seconds = one_at_a_time(attack, victim, z)
        theirs.append(seconds)
        apart = (together - alone).abs().max().item()
        print(f"  round {repeat + 1}: {ours[-1]:.2f} s and {theirs[-1]:.2f} s, at most {apart:.1e} apart", flush=True)
        if not apart < ROUNDING:
            sys.exit("the two ways do not give the same images")
    default = WhiteBox("adaptive")
    default.prepare(victim, AttackerData.of(data))
    recovered, attacking = attacked(default, victim, z)
    print(f"  the default attack: {TRIED['normal']} candidates, {STEPS['normal']} steps: {attacking:.1f} s")
    try:
        perceptual = perceptual_network()
    except AssetError as error:
        print(f"no PSIM: {error}")
        perceptual = None
    scorer = Scorer(x, data.test[1][sample], scaled(data.test[0][:1000]), perceptual)
    scorer.score(recovered)  # the first pass warms up
    began = time.perf_counter()
    scorer.score(recovered)
    scoring = time.perf_counter() - began
    ratio = statistics.median(slow / fast for fast, slow in zip(ours, theirs, strict=True))
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"ratio batched {ratio:.2f} (ours {len(x) / mine:.1f} images/s, theirs {len(x) / other:.1f} images/s)")
    print(f"ratio scoring {attacking / scoring:.2f} (ours {scoring:.2f} s, theirs {attacking:.1f} s for the attack)")


if __name__ == "__main__":
    main()
