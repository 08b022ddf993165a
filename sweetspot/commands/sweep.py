"""Make a grid of runs over any flags, or search in their ranges, attack each, and say which is the sweet spot.

python sweep.py --lambda 0.1 1 10 --beta 1e-2 1e-4                          # on all cores of this machine
python sweep.py --release gaussian --sigma 0.1 0.3 1 --cut pool1 pool2      # any flag of a run is an axis
python sweep.py --config configs/sweeps/mixcon_mnist.yaml --gpus-per-run 0.1  # the paper's grid, ten runs on a GPU
python sweep.py --config configs/sweeps/mixcon_mnist.yaml --address auto      # the same on a Ray cluster
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweetspot.registries import ATTACKS
from sweetspot.runs.command_line import (
    DEFENCE,
    ScriptParser,
    add_config_file,
    add_dataclass,
    add_options,
    add_run,
    add_trainer,
    files_first,
    files_in,
    parse_fields,
    run_command,
    script_parser,
    standing_in,
)
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.sweeps.axes import FIELDS, grid_of
from sweetspot.sweeps.config import SweepConfig

if TYPE_CHECKING:
    from sweetspot.sweeps.sweep import Outcome, Plan

OF_AXES = {  # what a flag means besides, where it takes several values
    "lam": "Here, of MixCon alone: 0.01 to 100, as in the paper.",
    "release": "Here each value is an alternative, and a chain is one of them: none gaussian clip+gaussian.",
    "augment": "Here each value is an alternative, and several together are one of them: none crop crop+flip.",
    "seed": "Every cell is made with each of them; figures are mean and spread over them.",
    "cut": "Vanilla is cut once, at the first of them.",
}
EXAMPLES = """\
  python sweep.py --lambda 0 0.1 1 10 --beta 1e-2 1e-4 --dataset fashion-mnist      on all cores of this machine
  python sweep.py --config configs/sweeps/small.yaml                               minutes, on the embedded digits
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --gpus-per-run 0.1     the paper's grid, ten runs on a GPU
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --address auto         the same on a Ray cluster
  python sweep.py --config configs/sweeps/mixcon_mnist.yaml --dry-run              what would run, and what is there
  python sweep.py --config configs/sweeps/frontier_mnist.yaml                      every defence at several strengths
  python sweep.py --lambda 1 10 --beta 1e-2 1e-4 --seed 0 1 2 --max-drop 0.005     three seeds a cell
  python sweep.py --release none gaussian clip+gaussian --sigma 0.5 1 2            a chain is one value
  python sweep.py --defence compress --lambda 1e-3 1e-2 --sigma 0.5 1 2 --cut pool1 pool2 --bottleneck none 16 120-16
  python sweep.py --defence compress --bottleneck 8 16 32 --lambda 1e-4..1e-1 --sigma 0.3..3 --search 40
"""


def sweep_parser(argv: list[str] | None, prog: str) -> ScriptParser:
    """The flags of a sweep: its own, and those of `train.py`, of which those that define a run take several values."""
    usage = "[--lambda λ …] [--FLAG VALUE …] [--search N --FLAG LOW..HIGH] [--config FILE] [--address HOST:PORT]"
    description = (
        "Train and attack a grid of runs, and find its sweet spot. Every flag that defines a run takes several\n"
        "values, and cells are all their combinations; where none is given, the λ × β grid of MixCon's paper.\n"
        "Finished cells are never done twice."
    )
    parser = script_parser(prog, usage, description, EXAMPLES)
    add_config_file(parser, sweeps=True)
    add_dataclass(parser, SweepConfig, without=("grids",), otherwise="sweep")
    parser.heading("sweep").add_argument(
        "--grids",
        nargs="+",
        default=[],
        metavar="GRID",
        help=(
            "in a --config file: a list of grids, each with flags of its own beside those of the file; a flag of the "
            "command line is for all of them"
        ),
    )
    add_run(parser, axes=FIELDS, also=OF_AXES)
    add_options(parser, argv, {**DEFENCE, "attacks": ATTACKS}, axes=True)
    add_trainer(parser)
    return parser


def parse_sweep(argv: list[str] | None = None, prog: str = "python sweep.py") -> tuple[SweepConfig, Plan]:
    """What a command line asks for."""
    parser = sweep_parser(argv, prog)
    arguments = files_first(sys.argv[1:] if argv is None else argv)
    fields, common = parse_fields(parser, argv, [SweepConfig, TrainConfig])
    config, written = SweepConfig(**fields), files_in(parser, arguments)

    def standing(name: str) -> str:
        return standing_in(name, written, arguments)

    def in_grids(name: str) -> str:
        return standing_in("grids", written, arguments)

    given: dict[str, Any] = {FLAG_NAMES.get(name, name): common.pop(name) for name in FIELDS}
    from sweetspot.sweeps.sweep import plan_of

    beside = grid_of({**given, **common.pop("options")}, parser.axes, standing)
    if not config.grids:
        return config, plan_of(config, [beside], common)
    wins = {name: beside[name] for name in flags_of(parser, arguments) if name in beside}
    own = [grid_of(each, parser.axes, in_grids) for each in config.grids]
    grids = [{**beside, **each, **wins} for each in own]
    return config, plan_of(config, grids, common, shared=[beside.keys() - each.keys() for each in own])


def flags_of(parser: ScriptParser, arguments: Sequence[str]) -> list[str]:
    """The axes that the command line itself names, whatever its files say."""
    flags = [
        argument
        for number, argument in enumerate(arguments)
        if "--config" not in arguments[max(0, number - 1) : number + 1]
    ]
    parsed = parser.parse_args(flags).as_dict()
    return [name for name in parser.axes if parsed[name] is not None]


def main(argv: list[str] | None = None, prog: str = "python sweep.py") -> int:
    """Parse, sweep, print."""

    def command() -> None:
        config, plan = parse_sweep(argv, prog)
        from sweetspot.sweeps.sweep import check_outcome, show_plan, sweep
        from sweetspot.training import train

        if plan.note:
            print(plan.note, flush=True)
        if config.dry_run:
            show_plan(config, plan)
            return
        outcome = sweep(config, plan, train)
        try:
            conclude(outcome, config)
        finally:
            check_outcome(outcome)

    return run_command(command)


def conclude(outcome: Outcome, config: SweepConfig) -> None:
    """Say what came of a sweep, and write the report of its folder."""
    from sweetspot.reports.page import write_report
    from sweetspot.sweeps.sweep import show_verdicts

    verdicts = outcome.verdicts(config)
    if not verdicts:
        return
    show_verdicts(verdicts, with_front=config.search is not None)
    out = Path(outcome.cells[0].config.out)
    report = write_report([out], out / "report.html", config.max_drop, config.metric)
    print(f"report   {report.page}", flush=True)
    said = [each.sentence for each in report.verdicts]
    if any(verdict.sentence not in said for _, verdict in verdicts):
        print(f"  it is about all runs in {out}, and so may name another cell", flush=True)


if __name__ == "__main__":
    sys.exit(main())
