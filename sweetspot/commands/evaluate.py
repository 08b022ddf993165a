"""Attack saved runs, and write what comes back into their results.

python evaluate.py checkpoints/mnist-*                                       # the default attacks, 100 test images
python evaluate.py checkpoints/mnist-* --attacks whitebox --recipe paper     # one attack, one recipe
python evaluate.py checkpoints/pydoc-* --attacks text --policy hybrid        # text out of hidden states
"""

from __future__ import annotations

import sys

from sweetspot.registries import ATTACKS
from sweetspot.registry import load_code
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.command_line import ScriptParser, add_attacks, add_options, run_command, script_parser

EXAMPLES = """\
  python evaluate.py checkpoints/mnist-*                                            the standard suite on 100 images
  python evaluate.py checkpoints/mnist-* --attacks whitebox decoder --samples 100
  python evaluate.py checkpoints/mnist-lenet-…/last.ckpt --attacks whitebox --recipe paper
  python evaluate.py checkpoints/cifar10-* --attacks decoder/paper decoder/adaptive  the paper's GAN too: 50 epochs
  python evaluate.py checkpoints --attacks whitebox                                 every run in a folder
  python evaluate.py checkpoints/mnist-* --budget thorough                          a patient attacker
  python evaluate.py checkpoints/pydoc-* --attacks text --policy hybrid --prompts 100
  python evaluate.py checkpoints/pydoc-* --policy single-commit sipit --operating-point high-accuracy
"""


def evaluate_parser(argv: list[str] | None, prog: str) -> ScriptParser:
    """The flags of an evaluation: AttackConfig's, and those of attacks."""
    usage = "RUN … [--attacks NAME …] [--recipe NAME …] [--samples N] [--prompts N] [FLAG …]"
    description = "Attack saved runs, and say how much of their inputs comes back."
    parser = script_parser(prog, usage, description, EXAMPLES)
    parser.add_argument(
        "runs", nargs="+", type=str, metavar="RUN", help="run folders, their last.ckpt, or folders of runs"
    )
    data = parser.heading("data")
    root = "where the runs' datasets lie; default $SWEETSPOT_DATA, else data/"
    data.add_argument("--data-root", type=str, default=None, metavar="ROOT", help=root)
    moved = "the runs' dataset, for a file that was moved; default: where each run's record says"
    data.add_argument("--dataset", type=str, default=None, metavar="DATASET", help=moved)
    add_attacks(parser)
    add_options(parser, argv, {"attacks": ATTACKS})
    own = "files (or modules) of your own with the runs' defences and networks (default: none)"
    parser.heading("run").add_argument("--code", nargs="+", type=str, default=[], metavar="FILE", help=own)
    return parser


def main(argv: list[str] | None = None, prog: str = "python evaluate.py") -> int:
    """Parse, attack, print."""

    def command() -> None:
        parser = evaluate_parser(argv, prog)
        parsed = parser.parse_args(argv).as_dict()
        paths = parsed.pop("runs")
        root, dataset = parsed.pop("data_root"), parsed.pop("dataset")
        for file in parsed.pop("code"):
            load_code(file)
        given = {name: parsed.pop(name) for name in parser.attack_options}
        options = {name: value for name, value in given.items() if value is not None}
        config = AttackConfig(**parsed, attack_options=options)
        from sweetspot.evaluations.several import evaluate_runs

        evaluate_runs(paths, config, root, dataset)

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
