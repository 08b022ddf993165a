"""Make a grid of runs over (λ, β), attack each, and say which of them is the sweet spot.

python sweep.py --lambda 0.1 1 10 --beta 1e-2 1e-4                          # on all cores of this machine
python sweep.py --config configs/sweeps/mixcon_mnist.yaml --gpus-per-run 0.1  # the paper's grid, ten runs on a GPU
python sweep.py --config configs/sweeps/mixcon_mnist.yaml --address auto      # the same on a Ray cluster
"""

from __future__ import annotations

import sys
from pathlib import Path

import openmp  # noqa: F401 (first: torch reads what it sets)

from attacks import ATTACKS
from reports.page import write_report
from runs.command_line import (
    DEFENCE,
    NO_FLAGS,
    ScriptParser,
    add_config_file,
    add_dataclass,
    add_options,
    add_trainer,
    parse_fields,
    run_command,
    script_parser,
)
from runs.config import TrainConfig
from sweeps.config import SweepConfig
from sweeps.plan import planned
from sweeps.sweep import check_common, check_outcome, show_plan, sweep, verdict_of
from train import train

GRID = ("lam", "beta", "seed")  # what a sweep takes several of
EXAMPLES = """\
  python sweep.py --lambda 0 0.1 1 10 --beta 1e-2 1e-4 --dataset fashion-mnist      on all cores of this machine
  python sweep.py --config configs/sweeps/small.yaml                               minutes, on the embedded digits
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --gpus-per-run 0.1     the paper's grid, ten runs on a GPU
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --address auto         the same on a Ray cluster
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --dry-run              what would run, and what is there
  python sweep.py --lambda 1 10 --beta 1e-2 1e-4 --seed 0 1 2 --max-drop 0.005     three seeds a cell
  python sweep.py --lambda 0.1 1 10 --beta 1e-2 1e-4 --refine 4                    and four more around the front
"""


def sweep_parser(argv: list[str] | None = None) -> ScriptParser:
    """The flags of a sweep: the grid's, and those of `train.py`."""
    usage = "[--lambda λ …] [--beta β …] [--seed N …] [--config FILE] [--address HOST:PORT] [FLAG …]"
    description = "Train and attack a grid of runs, and find its sweet spot. Finished cells are never done twice."
    parser = script_parser("sweep.py", usage, description, EXAMPLES)
    add_config_file(parser)
    add_dataclass(parser, SweepConfig)
    add_dataclass(parser, TrainConfig, without=(*NO_FLAGS, *GRID))
    add_options(parser, argv, {**DEFENCE, "attacks": ATTACKS}, without=GRID)
    add_trainer(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Parse, sweep, print."""

    def command() -> None:
        grid, common = parse_fields(sweep_parser(argv), argv, [SweepConfig, TrainConfig])
        config = SweepConfig(**grid)
        if config.dry_run:
            check_common(config, TrainConfig(**common))
            show_plan(planned(config.grid(common)), config, bool(common["force"]))
            return
        outcome = sweep(config, common, train)
        verdict = verdict_of(outcome, config)
        if verdict is not None:
            print("\n".join([verdict.sentence, *(f"  {note}" for note in verdict.notes)]), flush=True)
        try:
            if verdict is not None:
                out = Path(outcome.cells[0].config.out)
                report = write_report([out], out / "report.html", config.max_drop, config.metric)
                print(f"report   {report.page}", flush=True)
                if verdict.sentence not in [each.sentence for each in report.verdicts]:
                    print(f"  it is about all runs in {out}, and so may name another cell", flush=True)
        finally:
            check_outcome(outcome)

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
