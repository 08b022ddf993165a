"""A grid by `sweep.py` against the same runs by `train.py`, one after the other; start-up is part of both.

python benchmarks/sweep.py                 # eight cells of five epochs on the embedded digits
python benchmarks/sweep.py --epochs 1      # start-up is nearly everything
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAMBDAS = ("0.1", "0.3", "1", "2", "3", "5", "10")  # and vanilla: eight cells
BETA = "1e-2"


def timed(*command: str) -> float:
    """Seconds that a script takes, from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def accuracies(out: Path) -> dict[str, float]:
    """The accuracy of every run in a folder."""
    files = sorted(out.glob("*/results.json"))
    return {file.parent.name: json.loads(file.read_text())["utility"]["accuracy"] for file in files}


def main() -> None:
    """Make eight runs twice, and say how long each way took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweetspot-benchmark-") as folder:
        ours, theirs = Path(folder) / "sweep", Path(folder) / "train"
        common = ["--dataset", "mnist-5k", "--epochs", str(options.epochs), "--beta", BETA]
        common += ["--attacks", "whitebox/paper", "--samples", "50"]
        row = 0.0
        for lam in ("0", *LAMBDAS):
            seconds = timed("train.py", *common, "--lambda", lam, "--out", str(theirs))
            row += seconds
            print(f"train.py --lambda {lam}: {seconds:.1f} s", flush=True)
        grid = timed("sweep.py", *common, "--lambda", *LAMBDAS, "--out", str(ours))
        print(f"sweep.py: {grid:.1f} s", flush=True)
        apart = max(abs(accuracies(ours)[name] - accuracy) for name, accuracy in accuracies(theirs).items())
        print(f"accuracies differ by at most {100 * apart:.1f} points: with more threads train.py rounds otherwise")
        print(f"ratio grid {row / grid:.2f} (ours {grid:.1f} s, theirs {row:.1f} s)")


if __name__ == "__main__":
    main()
