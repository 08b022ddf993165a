"""What each part of a defence costs: a training step of LeNet5 with it against the same step without, in turns.

    python benchmarks/defences.py                  # images of the embedded digits, batch 100
    python benchmarks/defences.py --steps 200 --repeats 7

`ratio NAME X.XX` is vanilla's time over the part's in the same round, the median over rounds: 1 costs nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import torch.nn.functional as F
from torch import Tensor

from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.tensors import scaled
from sweetspot.lightning_modules.split_module import SplitModule

BATCH = 100
NOISE = [{"name": "gaussian", "sigma": 0.5, "unit": "raw"}]
PARTS: dict[str, dict[str, Any]] = {
    "mixcon": {"defence": "mixcon"},
    "unicon": {"defence": "unicon"},
    "nopeek": {"defence": "nopeek"},
    "compress": {"defence": "compress", "release": NOISE},
    "vib": {"defence": "vib", "release": NOISE},
    "cem": {"defence": "cem", "release": NOISE},
    "adversary": {"defence": "adversary"},
    "bottleneck 120-16": {"bottleneck": "120-16"},
    **{name: {"release": [{"name": name}]} for name in ("gaussian", "laplace", "dropout", "topk", "quantise", "clip")},
}


class Steps:
    """Training steps of one network, as Lightning would make them.

    Args:
        data: what it is trained on.
        parts: the defence's.
    """

    def __init__(self, data: TensorDataModule, parts: dict[str, Any]) -> None:
        torch.manual_seed(0)
        lam = 1.0 if "defence" in parts else 0.0
        self.module = SplitModule("lenet", list(data.shape), data.classes, pixels=data.pixels(), lam=lam, **parts)
        defence = self.module.defence
        trained = [*self.module.network.parameters(), *defence.trained_with_the_network()]
        self.optimiser = torch.optim.SGD(trained, lr=0.01, fused=True)
        if defence.penalty.wants_sample:
            x, y = scaled(data.train[0][:2000]), data.train[1][:2000]
            with torch.no_grad():
                defence.penalty.begin_epoch(defence.squeeze(self.module.network.encoder(x)), y)

    def take(self, x: Tensor, y: Tensor, steps: int) -> float:
        """Seconds that some steps on one batch take."""
        network, defence = self.module.network, self.module.defence
        began = time.perf_counter()
        for _ in range(steps):
            z = defence.squeeze(network.encoder(x))
            released = defence.release(z)
            loss = F.cross_entropy(self.module.answer(released), y)
            if self.module.penalised:
                defence.penalty.learn(released, x)
                loss = loss + self.module.lam * defence.penalty.value(z, y, x, released)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    data = TensorDataModule(load("mnist-5k", Path("data")), BATCH)
    x, y = next(iter(data.train_dataloader()))
    x = scaled(x)
    vanilla, others = Steps(data, {}), {name: Steps(data, parts) for name, parts in PARTS.items()}
    print(f"{chosen.steps} steps of batch {BATCH}, {torch.get_num_threads()} threads, {chosen.repeats} rounds")
    for steps in (vanilla, *others.values()):
        steps.take(x, y, 10)  # the first ones warm up
    for name, steps in others.items():
        rounds = [(vanilla.take(x, y, chosen.steps), steps.take(x, y, chosen.steps)) for _ in range(chosen.repeats)]
        ratio = statistics.median(without / with_it for without, with_it in rounds)
        theirs, ours = (1000 * statistics.median(each) / chosen.steps for each in zip(*rounds, strict=True))
        print(f"ratio {name} {ratio:.2f} (ours {ours:.2f} ms, theirs {theirs:.2f} ms a step)", flush=True)


if __name__ == "__main__":
    main()
