"""How fast a report of many runs is written, and how large it is, against a picture by matplotlib for each run.

    python benchmarks/report.py                          # 500 made-up runs
    python benchmarks/report.py --runs 50 --theirs 5

The runs are made up: grey images of 28 × 28, five attacks on 100 inputs each, varied in λ, β and seed. The obvious way
draws each run's gallery by matplotlib into a PNG and embeds it as base64; it is timed on some of the runs and scaled
up. Both show the same inputs.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
from matplotlib.figure import Figure

from sweetspot.datamodules import load
from sweetspot.datamodules.tensors import scaled
from sweetspot.reports.gallery import originals_of, recovered_images
from sweetspot.reports.gathering import FoundRun, gather
from sweetspot.reports.page import write_report
from sweetspot.reports.sections import displayed
from tests.reports.fabricated import defence_of, image_run

SEEDS = 4
MOST_SECONDS, MOST_MEGABYTES = 20.0, 20.0  # for 500 runs


def made_up(folder: Path, count: int, images: np.ndarray) -> None:
    """So many runs; the seeds of a cell share the files of its pictures."""
    cells = -(-count // SEEDS)
    side = max(1, round((cells - 1) ** 0.5))
    grid = itertools.product(np.logspace(-2, 2, side), np.logspace(-2, -9, -(-(cells - 1) // side)))
    defences = [
        defence_of("none", 0, 0),
        *(defence_of("mixcon", float(f"{a:.2g}"), float(f"{b:.2g}")) for a, b in grid),
    ]
    made = 0
    for defence in defences:
        first: Path | None = None
        for seed in range(SEEDS):
            if made < count:
                run = image_run(folder, defence, seed, originals=images, pictures=first)
                first, made = first or run, made + 1


def by_matplotlib(run: FoundRun, inputs: list[int]) -> str:
    """One run's gallery as the obvious way has it: axes for each image, a PNG at 100 dpi, base64."""
    originals = originals_of([run], inputs)
    assert originals is not None
    rows = {"original": originals, **recovered_images(run, inputs)}
    figure = Figure(figsize=(len(inputs), len(rows)), dpi=100)
    for line, (name, images) in zip(figure.subplots(len(rows), len(inputs)), rows.items(), strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image[0], cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=7)
    file = io.BytesIO()
    figure.savefig(file)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--theirs", type=int, default=20, help="runs that are drawn by matplotlib; scaled up to all")
    chosen = parser.parse_args()
    test = scaled(load("mnist-5k", Path("data")).x_test[::10][:100]).numpy()  # they lie in the order of their classes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made_up(folder, chosen.runs, test)
        began = time.perf_counter()
        report = write_report([folder], folder / "report.html")
        ours, size = time.perf_counter() - began, report.page.stat().st_size / 1e6
        runs = gather([folder]).runs
        print(
            f"{len(runs)} runs in {sum(len(each.cells) for each in report.settings)} cells: {ours:.1f} s, {size:.1f} MB"
        )
        inputs = displayed(report.settings[0], runs, len(runs))
        began = time.perf_counter()
        pictures = [by_matplotlib(run, inputs) for run in runs[: chosen.theirs]]
        scale = len(runs) / len(pictures)
        theirs, their_size = (time.perf_counter() - began) * scale, sum(map(len, pictures)) * scale / 1e6
    print(f"ratio report_time {theirs / ours:.2f} (ours {ours:.1f} s, theirs {theirs:.1f} s)")
    print(f"ratio report_size {their_size / size:.2f} (ours {size:.1f} MB, theirs {their_size:.1f} MB)")
    if ours > MOST_SECONDS or size > MOST_MEGABYTES:
        sys.exit(f"a report may take {MOST_SECONDS:.0f} s and {MOST_MEGABYTES:.0f} MB")


if __name__ == "__main__":
    main()
