"""A defence of one's own, in one class: trained and attacked on the embedded digits, beside the undefended network.

python examples/own_defence.py                 # minutes on two cores
python examples/own_defence.py --size 200      # a look, in a minute
sweetspot train --defence examples/own_defence.py:Shrink --lambda 1 --power 2     # the same class on the command line
"""

from __future__ import annotations

import argparse
from typing import Any

from torch import Tensor

import sweetspot


class Shrink(sweetspot.Penalty):
    """Keeps representations small."""

    power: float = sweetspot.option(2.0, "of the entries' magnitude", above=0)

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        return z.abs().pow(self.power).mean()


def main() -> None:
    """Train both, attack both, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=3000, help="training images")
    parser.add_argument("--out", default="checkpoints", help="the folder of all runs")
    chosen = parser.parse_args()
    from sweetspot.runs.config import TrainConfig
    from sweetspot.training import train

    defences: dict[str, dict[str, Any]] = {
        "vanilla": {"defence": "none"},
        "shrink": {"defence": f"{__file__}:Shrink", "lam": 1.0, "power": 2.0},
    }
    for name, flags in defences.items():
        config = TrainConfig.of(
            **flags,
            dataset="mnist-5k",
            limit_train=chosen.size,
            epochs=max(1, chosen.size // 500),
            samples=max(10, chosen.size // 50),
            budget="fast",
            out=chosen.out,
        )
        results = train(config)
        accuracy, leak = results["utility"]["accuracy"], results["worst_case"]["leak"]["ssim"]["mean"]
        print(f"{name:<8} accuracy {100 * accuracy:.1f} %, leak beyond the label {leak:.3f}")
    print(f"sweetspot report {chosen.out} shows both on one page")


if __name__ == "__main__":
    main()
