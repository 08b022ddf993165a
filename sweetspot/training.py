"""One run, end to end: data → network → penalty → run folder → attacks."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.language import TextDataModule
from sweetspot.datamodules.text import load_text
from sweetspot.datamodules.tokens import train_bpe
from sweetspot.errors import UserError, first_line
from sweetspot.evaluations.dispatch import check_attacks_fit, evaluate
from sweetspot.lightning_modules.callbacks import TrainingProgress
from sweetspot.lightning_modules.causal_lm import load_language_model
from sweetspot.lightning_modules.networks import build_network
from sweetspot.lightning_modules.networks.foreign import is_foreign, load_model
from sweetspot.lightning_modules.networks.language import SplitLanguageModel, state_sizes
from sweetspot.lightning_modules.networks.split import built
from sweetspot.lightning_modules.networks.splitting import possible_cuts
from sweetspot.lightning_modules.separability import separability
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import measure_utility, representations_of_tests
from sweetspot.progress import duration
from sweetspot.reports.figures import representations_figure, training_curve
from sweetspot.reports.tables import cuts_table, describe_defence, in_short
from sweetspot.runs.checkpoints import SafeCheckpointIO, check_resumable, resuming
from sweetspot.runs.config import TRAINER_DEFAULTS, TrainConfig
from sweetspot.runs.environment import environment, leave_new_memory_alone, pick_device
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.folder import Run
from sweetspot.runs.identity import digest_of
from sweetspot.runs.signals import hear_sigterm
from sweetspot.runs.standardise import pixels_by

SIZED = 16  # blocks of text that the usual size of a language model's states is measured on


def train(config: TrainConfig, watchers: Sequence[Callback] = ()) -> dict[str, Any]:
    """Make one run, or find it finished, or go on where it was stopped; its results, as in `results.json`.

    Args:
        config: of the run.
        watchers: callbacks of Lightning that look on while it trains.
    """
    pick_device(config.device)  # a wrong one is not found out after an hour of training
    if config.attacks != ["none"]:
        check_attacks_fit(f"--network {config.network}", config.is_language, config)
    datamodule, module = build_language(config) if config.is_language else build(config)
    arrays = datamodule.arrays
    run = Run(Path(config.out) / config.run_name(arrays.name, arrays.source, arrays.identity))
    run.check_name()
    prepare = functools.partial(checked_trainer, config, datamodule, module, run, watchers)
    if config.trainer.get("fast_dev_run"):
        return train_and_measure(config, datamodule, module, run, prepare(), save=False)
    if not owns_the_run():
        run.wait_until_set_aside(config.force)
        return {} if run.finished else train_and_measure(config, datamodule, module, run, prepare(), save=False)
    # whatever can be refused is refused before the folder is made
    trainer = prepare() if config.force or not run.finished else None
    is_new = not run.folder.exists()
    run.create()
    with run.claimed():
        if run.finished and not config.force:
            print(f"already done: {run.folder} (--force does it again)")
            results = run.read_results()
        else:
            if run.finished:
                run.set_aside()
            try:
                results = train_and_measure(config, datamodule, module, run, trainer or prepare(), save=True)
            except TrainerRefusedError:
                if is_new:
                    shutil.rmtree(run.folder, ignore_errors=True)
                raise
        return results if config.attacks == ["none"] else attacked(config, run)


class TrainerRefusedError(UserError):
    """Lightning does not take these `--trainer.*` arguments; nothing was trained.

    Args:
        error: what Lightning says.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"Lightning refuses these --trainer.* arguments: {first_line(error)}")


def attacked(config: TrainConfig, run: Run) -> dict[str, Any]:
    """The results with the attacks in them: made from the run's checkpoint, exactly as `evaluate.py` makes them."""
    on_cpu = config.device == "auto" and config.trainer.get("accelerator") == "cpu"
    return evaluate(run, dataclasses.replace(config, device="cpu") if on_cpu else config, config.data_root)


def owns_the_run() -> bool:
    """Whether this is the first of the processes that train one model: it alone speaks and writes."""
    node = int(os.environ.get("NODE_RANK") or os.environ.get("GROUP_RANK") or 0)
    return int(getattr(rank_zero_only, "rank", 0)) == 0 and node == 0


def build(config: TrainConfig) -> tuple[TensorDataModule, SplitModule]:
    """The images or vectors, and the network for them."""
    arrays = load(config.dataset, config.root, config.seed, config.image_size, config.skip_corrupt)
    datamodule = TensorDataModule(
        arrays, config.batch_size, config.seed, config.validation_fraction, config.limit_train, config.limit_test
    )
    return datamodule, build_module(config, datamodule)


def build_language(config: TrainConfig) -> tuple[TensorDataModule, SplitModule]:
    """The text as the language model's tokens, and the model, with the weights that it begins with."""
    corpus = load_text(config.dataset or "pydoc")
    fresh = train_bpe(corpus.train, config.vocabulary) if config.network == "gpt2-tiny" else None
    model, tokenizer = load_language_model(config.network, fresh, config.seed)
    limits = (config.limit_train, config.limit_test)
    datamodule = TextDataModule(corpus, tokenizer, config.length, config.batch_size, config.seed, *limits)
    language: dict[str, Any] = {
        "config": model.config.to_dict(), "tokenizer": tokenizer.to_json(), "source": model.name_or_path,
    }  # fmt: skip
    given = SplitLanguageModel(model, config.cut)
    # a model that begins with real weights knows states of one size only; one from scratch learns any
    if config.network != "gpt2-tiny" and any(each.get("unit") == "rms" for each in config.release_record()):
        language["sizes"] = state_sizes(given, datamodule.train[0][:SIZED])
    module = build_module(config, datamodule, language)
    module.network.load_state_dict(given.state_dict())
    return datamodule, module


def build_module(
    config: TrainConfig, datamodule: TensorDataModule, language: dict[str, Any] | None = None
) -> SplitModule:
    """The network and its defence as the config asks, freshly initialised from the seed."""
    lightning.seed_everything(config.seed, verbose=False)
    pixels = pixels_by(config.standardise or (["none"] if config.weights else ["data"]), datamodule)
    module = SplitModule(
        network=config.network,
        shape=list(datamodule.shape),
        classes=datamodule.classes,
        cut=config.cut,
        head=config.head,
        pixels=pixels,
        optimiser=config.optimiser,
        language=language,
        defence=config.penalty.name,
        defence_options=config.defence_options(),
        bottleneck=config.bottleneck,
        release=config.release_record(),
        epochs=config.epochs,
        lam=config.weight,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        milestones=config.milestones,
        schedule=config.schedule,
        seed=config.seed,
        augment=config.augment,
        train_part=config.train,
    )
    if config.weights is not None:
        fields = (tuple(datamodule.shape), datamodule.classes, config.cut, config.head, pixels)
        given = build_network(config.network, *fields, weights=Path(config.weights))
        module.network.load_state_dict(given.state_dict())
    return module


def say_where_to_cut(config: TrainConfig, logits: int = 0) -> None:
    """The places where the network can be cut, for the data that it is to have; with a logit a class, or so many."""
    arrays = load(config.dataset, config.root, config.seed, config.image_size, config.skip_corrupt)
    shape = tuple(arrays.x_train.shape[1:])
    classes = logits or arrays.classes
    model = load_model(config.network, shape, classes)
    blocks = [] if is_foreign(config.network) else built(config.network, shape, classes, config.head).blocks
    cuts_table(config.network, possible_cuts(model, shape), blocks)


def train_and_measure(
    config: TrainConfig,
    datamodule: TensorDataModule,
    module: SplitModule,
    run: Run,
    trainer: lightning.Trainer,
    save: bool,
) -> dict[str, Any]:
    """Train, measure on the test set, and, where this process owns the run's folder, write it all down."""
    began = time.perf_counter()
    resume = run.checkpoint if run.checkpoint.exists() else None
    epochs_done = check_resumable(resume, module) + 1 if resume is not None else 0
    before = None
    if save:
        say_what_runs(config, datamodule, module, run, epochs_done, trainer.world_size)
        run.write_config(recorded_config(config, datamodule))
        before = planar_representations(module, datamodule)
    optimise(config, trainer, module, datamodule, resume)
    if not trainer.is_global_zero:
        return {}
    module.check_trained()
    device = trainer.strategy.root_device
    after = measure_utility(module.to(device), datamodule)
    if not after.representations.isfinite().all():
        raise UserError("the trained network gives NaN or infinite representations: lower --lr or --lambda")
    results: dict[str, Any] = {
        "name": run.name,
        "data": datamodule.record(),
        "model": {"name": config.network, "cut": module.network.cut_layer, "head": config.head}
        | ({} if config.weights is None else {"weights": digest_of(config.weights)}),
        "defence": config.defence_record(),
        "utility": {"accuracy": after.accuracy}
        | ({"perplexity": after.perplexity} if after.perplexity is not None else {}),
        "separability": separability(after.representations),
        "attacks": {},
        "worst_case": {},
        # seconds in the environment count from the last start, so a resumed run says that it is one
        "training": {"resumed": resume is not None, "devices": trainer.world_size, "history": module.history},
        "config": recorded_config(config, datamodule),
        "environment": environment(device, config.seed, time.perf_counter() - began),
    }
    if save:
        figures = f"accuracy {in_short(results['utility'])}, distance {results['separability']['mean']:.3f}"
        print(f"trained  {figures}, {duration(results['environment']['seconds'])}", flush=True)
        training_curve(module.history, run.folder / "training.png")
        if before is not None:
            moments = {"before training": before, "after": (after.representations.flatten(1), after.classes)}
            representations_figure(moments, run.folder / "representations.png")
        run.write_results(results)
    return results


def optimise(
    config: TrainConfig,
    trainer: lightning.Trainer,
    module: SplitModule,
    datamodule: TensorDataModule,
    resume: Path | None,
) -> None:
    """Lightning's fit, with its ways of ending in our words."""
    try:
        with resuming(trainer, resume):
            trainer.fit(module, datamodule=datamodule, ckpt_path=resume)
    except MisconfigurationException as error:
        raise TrainerRefusedError(error) from error
    except UserError:
        raise
    except ValueError as error:
        if any(name in str(error) for name in config.trainer):  # such as a val_check_interval longer than an epoch
            raise TrainerRefusedError(error) from error
        raise
    except SystemExit:  # how Lightning ends after Ctrl-C
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise


class HearSigterm(Callback):
    """Takes SIGTERM back from Lightning, whose handler tells all ranks of it, and waits for those that cannot hear."""

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        hear_sigterm()


def checked_trainer(
    config: TrainConfig, datamodule: TensorDataModule, module: SplitModule, run: Run, watchers: Sequence[Callback]
) -> lightning.Trainer:
    """The trainer of a run whose `--trainer.*` and batch size can be had on its devices."""
    trainer = build_trainer(config, run, watchers)
    check_batch(config, datamodule, module, trainer.world_size)
    return trainer


def check_batch(config: TrainConfig, datamodule: TensorDataModule, module: SplitModule, devices: int) -> None:
    """Refuse a batch that leaves the penalty nothing to compare."""
    share, least = -(-config.batch_size // devices), module.defence.penalty.least_batch(datamodule.classes)
    if module.penalised and share < least:
        raise UserError(
            f"--batch-size must be at least {least * devices}: {config.defence} with {datamodule.classes} classes "
            f"needs {least} examples on each of {devices} device(s); got {config.batch_size}"
        )


def planar_representations(module: SplitModule, datamodule: TensorDataModule) -> tuple[Tensor, Tensor] | None:
    """Test representations (N, 2) and classes where the cut layer is a plane, else nothing."""
    z, y = representations_of_tests(module, datamodule, count=2)
    if z.flatten(1).shape[1] != 2:
        return None
    z, y = representations_of_tests(module, datamodule)
    return z.flatten(1), y


def build_trainer(config: TrainConfig, run: Run, watchers: Sequence[Callback] = ()) -> lightning.Trainer:
    """Lightning's Trainer with our folder, our checkpoints and the user's `--trainer.*`."""
    if "spawn" in str(config.trainer.get("strategy")) or "fork" in str(config.trainer.get("strategy")):
        raise UserError(
            "--trainer.strategy must start its processes as scripts; use ddp instead of a spawned or forked one"
        )
    if config.trainer.get("precision") in ("16-true", "bf16-true"):
        raise UserError("--trainer.precision must keep the weights in fp32; use 16-mixed or bf16-mixed")
    fast = bool(config.trainer.get("fast_dev_run"))
    leave_new_memory_alone()
    checkpoint = ModelCheckpoint(
        run.folder, filename="last", save_on_train_epoch_end=True, enable_version_counter=False
    )
    try:
        return lightning.Trainer(
            **{**TRAINER_DEFAULTS, **config.trainer},
            max_epochs=config.epochs,
            default_root_dir=run.folder,
            logger=[] if fast else [CSVLogger(run.logs, name="csv"), TensorBoardLogger(run.logs, name="tensorboard")],
            callbacks=[TrainingProgress(), HearSigterm(), *watchers, checkpoint],
            plugins=[SafeCheckpointIO()],
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,  # our batches know their rank
        )
    except (MisconfigurationException, ValueError, TypeError, ImportError, ArithmeticError) as error:
        raise TrainerRefusedError(error) from error


def say_what_runs(
    config: TrainConfig, datamodule: TensorDataModule, module: SplitModule, run: Run, epochs_done: int, devices: int
) -> None:
    """A few lines before the bar: the data, the model, its weights, the folder."""
    data = datamodule.record()
    print(
        f"data     {data['name']}: {data['train']:,} train, {data['validation']:,} validation, {data['test']:,} test "
        f"({data['source']})"
    )
    print(
        f"model    {config.network} cut after {module.network.cut_layer}, {describe_defence(config.defence_record())}"
    )
    if config.weights is not None:
        how = "" if config.standardise else "; images go in as they are: --standardise data, or MEAN STD, scales them"
        print(f"weights  {config.weights}, sha256 {digest_of(config.weights)[:12]}{how}")
    print(f"run      {run.folder}", flush=True)
    share = -(-config.batch_size // devices)
    if module.penalised and (idle := module.defence.penalty.left_out(datamodule.classes, share)):
        paired = -(-share // datamodule.classes) * datamodule.classes * devices
        print(
            f"note: {config.defence} pairs the classes evenly, so {idle} of {share} examples of a batch enter no pair; "
            f"--batch-size {paired} pairs all of them",
            file=sys.stderr,
        )
    for doubt in datamodule.doubts():
        print(f"warning: {doubt}", file=sys.stderr, flush=True)
    if epochs_done:
        print(f"resuming after epoch {epochs_done} of {config.epochs}", flush=True)


def recorded_config(config: TrainConfig, datamodule: TensorDataModule) -> dict[str, Any]:
    """The resolved config as `--config` takes it again, with the dataset that was really used."""
    record = {FLAG_NAMES.get(name, name): value for name, value in config.flags().items()}
    record["dataset"] = config.dataset if config.dataset is not None else datamodule.arrays.name
    record["data_root"] = None
    record["force"] = False
    return record
