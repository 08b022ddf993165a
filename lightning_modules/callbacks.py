"""What a person sees of a run while it trains."""

from __future__ import annotations

import sys
import time
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from rich.progress import Progress

from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.progress import REFRESH_SECONDS, LogLines, bar

EPOCHS = 10  # from so many on, their lines are enough; of fewer a log is told every tenth of the work, too


class TrainingProgress(Callback):
    """A line an epoch, on a terminal a bar for the whole run below them, and an estimate of the total time."""

    def __init__(self) -> None:
        self.lines: LogLines | None = None
        self.shown = 0.0
        self.epochs_shown = 0
        self.bar: Progress | None = None
        self.terminal = sys.stdout.isatty()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: SplitModule) -> None:  # type: ignore[override]
        self.epochs_shown = len(pl_module.history)
        if not trainer.is_global_zero:
            return
        self.total = int(trainer.estimated_stepping_batches)
        tenths = not self.terminal and (trainer.max_epochs or 0) < EPOCHS
        self.lines = LogLines("training", self.total, trainer.global_step, tenths, self.say)
        if self.terminal:
            self.bar = bar()
            self.task = self.bar.add_task("training", total=self.total, completed=trainer.global_step)
            self.bar.start()

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any) -> None:
        if self.lines is None:
            return
        self.lines(trainer.global_step)
        now = time.perf_counter()
        if self.bar is not None and now - self.shown > REFRESH_SECONDS:
            self.bar.update(self.task, completed=trainer.global_step)
            self.shown = now

    def show_epochs(self, trainer: lightning.Trainer, pl_module: SplitModule) -> None:
        """A line for every epoch since the last look (the module closes an epoch's books after the callbacks' turn)."""
        for epoch in pl_module.history[self.epochs_shown :] if trainer.is_global_zero else []:
            figures = "  ".join(f"{name} {value:.4f}" for name, value in epoch.items() if name != "epoch")
            line = f"epoch {int(epoch['epoch']) + 1}/{trainer.max_epochs}  {figures}"
            self.say(line)
        self.epochs_shown = len(pl_module.history)
        if self.bar is not None:
            self.bar.update(self.task, completed=trainer.global_step)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: SplitModule) -> None:  # type: ignore[override]
        self.show_epochs(trainer, pl_module)

    def say(self, line: str) -> None:
        """A line above the bar, or a plain one."""
        if self.bar is not None:
            self.bar.console.print(line, highlight=False)
        else:
            print(line, flush=True)

    def stop(self) -> None:
        """Give the terminal back."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(self, trainer: lightning.Trainer, pl_module: SplitModule) -> None:  # type: ignore[override]
        self.show_epochs(trainer, pl_module)
        self.stop()

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        self.stop()
