"""Train one split network with a defended cut layer, end to end: data → network → penalty → run folder → attacks.

python train.py --lambda 1 --beta 1e-4          # LeNet5 on MNIST with MixCon, cut after the 2nd block
python train.py --lambda 0                      # the vanilla network
python train.py --config configs/synthetic.yaml --lambda 0.1 --beta 0.01
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweetspot.errors import UserError
from sweetspot.registries import ATTACKS
from sweetspot.runs.command_line import ScriptParser, files_first, parse_train, run_command, train_parser
from sweetspot.runs.config import TrainConfig

if TYPE_CHECKING:
    from sweetspot.runs.folder import Run

EXAMPLES = """\
  python train.py --lambda 1 --beta 1e-4                        LeNet5 on MNIST with MixCon, cut after the 2nd block
  python train.py --lambda 0                                    the vanilla network
  python train.py --defence unicon --lambda 1 --dataset fashion-mnist
  python train.py --config configs/cifar10_vgg16.yaml --lambda 1 --beta 1e-8 --trainer.devices 4
  python train.py --config configs/synthetic.yaml --lambda 0.1 --beta 0.01
  python train.py --dataset my_images.npz --network lenet --cut conv1
  python train.py --dataset my_images.npz --network torchvision:resnet18 --cut layer1
  python train.py --dataset my_images.npz --network my_model.py:build --cut ?   where it can be cut
  python train.py --config configs/gpt2_tiny.yaml --lambda 0.1 --beta 1e-4   a small GPT-2, cut after its 2nd block
  python train.py --config configs/gpt2.yaml --network DIR --cut last        GPT-2 of a folder, cut after its last block
  python train.py --lambda 1 --attacks none                     train only; evaluate.py attacks the run later
  python train.py --lambda 1 --print_config                     what would run, as YAML
"""


def say_where_the_pictures_are(run: Run) -> None:
    """One line for whoever would rather look than read."""
    pictures = sorted(run.folder.glob("*.png"))
    if pictures:
        print("pictures " + "  ".join(str(picture) for picture in pictures), flush=True)


def check_weight(parser: ScriptParser, argv: Sequence[str] | None, config: TrainConfig) -> None:
    """Refuse a `--lambda` without a defence to weigh; where a file gives it, say that it does nothing."""
    if config.defence != "none":
        return
    arguments = files_first(sys.argv[1:] if argv is None else argv)
    given = parser.parse_args(arguments, defaults=False).as_dict()
    if not given.get("lambda"):  # λ = 0 is how the vanilla network is asked for
        return
    flags = [argument.partition("=")[0] for argument in arguments]
    if any(len(flag) > 3 and "--lambda".startswith(flag) for flag in flags):  # argparse takes abbreviations
        raise UserError(
            f"--lambda {given['lambda']:g} weighs a penalty, and --defence none has none; leave one of them out"
        )
    print(f"--defence none: lambda {given['lambda']:g} of the --config file does nothing", flush=True)


def main(argv: list[str] | None = None, prog: str = "python train.py") -> int:
    """Parse, train, print."""

    def command() -> None:
        description = "Train a split network with a consistency penalty on its cut layer, and attack it."
        parser = train_parser(prog, description, EXAMPLES, argv, ATTACKS)
        config = parse_train(parser, argv)
        check_weight(parser, argv, config)
        from sweetspot.reports.tables import attacks_table, results_table
        from sweetspot.runs.folder import Run
        from sweetspot.runs.matching import matching_vanilla
        from sweetspot.training import say_where_to_cut, train

        if config.cut == "?" and not config.is_language:
            say_where_to_cut(config)
            return
        results = train(config)
        if results:
            results_table([results])
            run = Run(Path(config.out) / results["name"])
            attacks_table(results, matching_vanilla(run) if run.finished else None)
            say_where_the_pictures_are(run)

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
