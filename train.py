"""Train one split network with a defended cut layer, end to end: data → network → penalty → run folder → result.

python train.py --lambda 1 --beta 1e-4          # LeNet5 on MNIST with MixCon, cut after the 2nd block
python train.py --lambda 0                      # the vanilla network
python train.py --config configs/synthetic.yaml --lambda 0.1 --beta 0.01
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from datamodules import TensorDataModule, load
from errors import UserError, first_line
from lightning_modules.callbacks import TrainingProgress
from lightning_modules.separability import separability
from lightning_modules.split_module import SplitModule
from lightning_modules.utility import Utility, measure_utility
from reports.figures import representations_figure, training_curve
from reports.tables import results_table
from runs.checkpoints import SafeCheckpointIO, load_checkpoint
from runs.command_line import parse_train, run_command, train_parser
from runs.config import TRAINER_DEFAULTS, TrainConfig
from runs.environment import environment
from runs.folder import Run

EXAMPLES = """\
  python train.py --lambda 1 --beta 1e-4                        LeNet5 on MNIST with MixCon, cut after the 2nd block
  python train.py --lambda 0                                    the vanilla network
  python train.py --defence unicon --lambda 1 --dataset fashion-mnist
  python train.py --config configs/cifar10_vgg16.yaml --lambda 1 --beta 1e-8 --trainer.devices 4
  python train.py --config configs/synthetic.yaml --lambda 0.1 --beta 0.01
  python train.py --dataset my_images.npz --network lenet --cut conv1
  python train.py --lambda 1 --print_config                     what would run, as YAML
"""


def train(config: TrainConfig) -> dict[str, Any]:
    """Make one run, or find it finished, or go on where it was stopped; its results, as in `results.json`."""
    arrays = load(config.dataset, config.root, config.seed)
    datamodule = TensorDataModule(
        arrays, config.batch_size, config.seed, config.validation_fraction, config.limit_train, config.limit_test
    )
    module = build_module(config, datamodule)
    run = Run(Path(config.out) / config.run_name(arrays.name, arrays.source))
    if config.trainer.get("fast_dev_run"):
        return fit(config, datamodule, module, run, save=False)
    run.create()
    if getattr(rank_zero_only, "rank", 0) != 0:  # a second device's process: the first one owns the folder
        return {} if run.finished and not config.force else fit(config, datamodule, module, run, save=False)
    with run.claimed():
        if run.finished and not config.force:
            print(f"already done: {run.folder} (--force does it again)")
            return run.read_results()
        if run.finished:
            run.set_aside()
        return fit(config, datamodule, module, run, save=True)


def build_module(config: TrainConfig, datamodule: TensorDataModule) -> SplitModule:
    """The network and its defence as the config asks, freshly initialised from the seed."""
    lightning.seed_everything(config.seed, verbose=False)
    return SplitModule(
        network=config.network,
        shape=list(datamodule.shape),
        classes=datamodule.classes,
        cut=config.cut,
        head=config.head,
        pixels=datamodule.pixels(),
        defence=config.defence,
        defence_options=config.defence_options(),
        lam=config.lam,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        milestones=config.milestones,
        seed=config.seed,
    )


def fit(config: TrainConfig, datamodule: TensorDataModule, module: SplitModule, run: Run, save: bool) -> dict[str, Any]:
    """Train, measure on the test set, and, where this process owns the run's folder, write it all down."""
    began = time.perf_counter()
    resume = run.checkpoint if run.checkpoint.is_file() else None
    if save:
        say_what_runs(config, datamodule, module, run, resume)
        run.write_config(recorded_config(config, datamodule))
    before = measure_utility(module, datamodule)
    trainer = build_trainer(config, run)
    try:
        trainer.fit(module, datamodule=datamodule, ckpt_path=resume)
    except SystemExit:  # how Lightning ends after Ctrl-C
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    if not trainer.is_global_zero:
        return {}
    module.check_penalty_moved()
    device = trainer.strategy.root_device
    after = measure_utility(module.to(device), datamodule)
    results = {
        "name": run.name,
        "data": datamodule.record(),
        "model": {"name": config.network, "cut": module.network.cut_layer, "head": config.head},
        "defence": {"name": config.defence, "lambda": config.lam, "beta": config.beta, **config.defence_options()},
        "utility": {"accuracy": after.accuracy},
        "separability": separability(after.representations),
        "attacks": {},
        "worst_case": {},
        "training": training_record(config, module, resumed=resume is not None),
        "environment": environment(device, config.seed, time.perf_counter() - began),
    }
    if save:
        draw(run, module, before, after)
        run.write_results(results)
    return results


def training_record(config: TrainConfig, module: SplitModule, resumed: bool) -> dict[str, Any]:
    """How the weights came about; `seconds` in the environment counts from the last start, so a resumed run says so."""
    names = ("epochs", "batch_size", "lr", "momentum", "weight_decay", "milestones")
    return {**{name: getattr(config, name) for name in names}, "resumed": resumed, "history": module.history}


def build_trainer(config: TrainConfig, run: Run) -> lightning.Trainer:
    """Lightning's Trainer with our folder, our checkpoints and the user's `--trainer.*`."""
    fast = bool(config.trainer.get("fast_dev_run"))
    # determinism without its debugging aid, which fills every new tensor
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    checkpoint = ModelCheckpoint(
        run.folder, filename="last", save_on_train_epoch_end=True, enable_version_counter=False
    )
    try:
        return lightning.Trainer(
            **{**TRAINER_DEFAULTS, **config.trainer},
            max_epochs=config.epochs,
            default_root_dir=run.folder,
            logger=[] if fast else [CSVLogger(run.logs, name="csv"), TensorBoardLogger(run.logs, name="tensorboard")],
            callbacks=[TrainingProgress(), checkpoint],
            plugins=[SafeCheckpointIO()],
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,  # our batches know their rank
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise UserError(f"Lightning refuses these --trainer.* arguments: {first_line(error)}") from error


def say_what_runs(
    config: TrainConfig, datamodule: TensorDataModule, module: SplitModule, run: Run, resume: Path | None
) -> None:
    """Three lines before the bar: the data, the model, the folder."""
    data = datamodule.record()
    print(
        f"data     {data['name']}: {data['train']:,} train, {data['validation']:,} validation, {data['test']:,} test "
        f"({data['source']})"
    )
    print(f"model    {config.network} cut after {module.network.cut_layer}, {config.describe_defence()}")
    print(f"run      {run.folder}", flush=True)
    if resume is not None:
        epoch = load_checkpoint(resume)["epoch"] + 1
        print(f"resuming after epoch {epoch} of {config.epochs}", flush=True)


def recorded_config(config: TrainConfig, datamodule: TensorDataModule) -> dict[str, Any]:
    """The resolved config as `--config` takes it again, with the dataset that was really used."""
    record = dataclasses.asdict(config)
    record["lambda"] = record.pop("lam")
    record["dataset"] = config.dataset if config.dataset is not None else datamodule.arrays.name
    record["data_root"] = None
    record["force"] = False
    return record


def draw(run: Run, module: SplitModule, before: Utility, after: Utility) -> None:
    """The run's figures: its training curve; where the cut layer is a plane, the representations before and after."""
    training_curve(module.history, run.folder / "training.png")
    moments = {"before training": before, "after": after}
    panels = {title: (moment.representations.flatten(1), moment.classes) for title, moment in moments.items()}
    if all(z.shape[1] == 2 for z, _ in panels.values()):
        representations_figure(panels, run.folder / "representations.png")


def main(argv: list[str] | None = None) -> int:
    """Parse, train, print."""

    def command() -> None:
        description = "Train a split network with a consistency penalty on its cut layer."
        results = train(parse_train(train_parser("train.py", description, EXAMPLES), argv))
        if results:
            results_table([results])

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
