"""SplitModule: one LightningModule that trains every split network, with cross-entropy + λ · penalty(cut layer)."""

from __future__ import annotations

import math
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor

from errors import UserError
from lightning_modules.defences import DEFENCES
from lightning_modules.epoch_sums import EpochSums
from lightning_modules.networks import SplitNetwork, build_network
from lightning_modules.networks.language import SplitLanguageModel, language_model


class SplitModule(lightning.LightningModule):
    """A split network, its defence and how both are trained; plain arguments, so that a checkpoint rebuilds it.

    Args:
        network: the network's registry name.
        shape: the shape of one input.
        classes: how many classes there are.
        cut: where the network is cut, a block's number or a layer's name.
        head: the head's variant (`default`, and for the MLP `deeper` and `wider`).
        pixels: mean and standard deviation of the images by channel, None for vectors.
        defence: the defence's name.
        defence_options: the defence's own arguments, such as β.
        lam: λ, the weight of the penalty.
        lr: SGD's learning rate.
        momentum: SGD's momentum.
        weight_decay: SGD's weight decay.
        milestones: epochs after which the learning rate is multiplied by `gamma`.
        gamma: that factor.
        seed: what every epoch's randomness follows from.
        optimiser: `sgd` or `adam`.
        language: for a language model its `config`, as transformers writes it, and its `tokenizer`, as JSON; what is
            classified is then every position, and its class is the next token.
    """

    def __init__(
        self,
        network: str,
        shape: list[int],
        classes: int,
        cut: int | str = 2,
        head: str = "default",
        pixels: dict[str, list[float]] | None = None,
        defence: str = "none",
        defence_options: dict[str, Any] | None = None,
        lam: float = 0.0,
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        milestones: list[int] | None = None,
        gamma: float = 0.1,
        seed: int = 0,
        optimiser: str = "sgd",
        language: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network: SplitNetwork | SplitLanguageModel
        if language is None:
            self.network = build_network(network, tuple(shape), classes, cut, head, pixels)
        else:
            self.network = language_model(language["config"], cut)
        if len(shape) == 3:
            self.network.to(memory_format=torch.channels_last)  # convolution and pooling run faster so, on CPU and GPU
        self.defence = DEFENCES[defence](**(defence_options or {}))
        self.lam = lam
        self.penalised = self.defence.active and lam > 0
        # the smallest and the largest penalty of any step, for `check_trained`
        self.register_buffer("penalty_range", torch.tensor([math.inf, -math.inf]))
        self.penalty_range: Tensor
        # every epoch's figures, kept in the checkpoint, so that a resumed run has the whole curve
        self.history: list[dict[str, float]] = []
        self.sums = {"train": EpochSums(), "val": EpochSums()}
        self.validated: dict[str, float] = {}  # this epoch's validation figures, where it had a validation

    def forward(self, x: Tensor) -> Tensor:
        """The server's logits for inputs x (B, …): the head sees what the defence releases."""
        logits: Tensor = self.network.head(self.encode(x))
        return logits

    def encode(self, x: Tensor) -> Tensor:
        """What leaves the client for inputs x (B, …): the released cut layer."""
        return self.defence.release(self.network.encoder(x))

    # ------------------------------------------------------------------ training

    def on_train_epoch_start(self) -> None:
        # One seed an epoch (and a rank): a run resumed at epoch k draws what an unbroken run draws there.
        torch.manual_seed((self.hparams["seed"] * 1_000_003 + self.current_epoch) * 1009 + self.global_rank)
        self.sums["train"] = EpochSums()
        self.validated = {}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        z = self.network.encoder(x)
        logits = self.network.head(self.defence.release(z))
        z, logits, y = positions(z, y), positions(logits, y), y.flatten()
        loss = F.cross_entropy(logits, y)
        penalty = self.defence.penalty(z, y, x) if self.penalised else loss.new_zeros(())
        if self.penalised and not penalty.requires_grad:
            raise UserError(
                f"the {self.defence.name} penalty does not depend on the cut layer: λ={self.lam:g} does nothing"
            )
        self.sums["train"].add(logits, y, loss, penalty)
        return loss + self.lam * penalty if self.penalised else loss

    def on_train_epoch_end(self) -> None:
        loss, penalty, accuracy = self.means("train")
        low, high = self.sums["train"].penalty_range()
        self.penalty_range[0].clamp_(max=low)
        self.penalty_range[1].clamp_(min=high)
        figures = {"train/loss": loss, "train/accuracy": accuracy}
        if self.penalised:
            figures[f"train/{self.defence.name}"] = penalty  # a defence logs its own quantity
        self.log_dict(figures)
        self.history.append({"epoch": self.current_epoch, **figures, **self.validated})
        self.check_finite(figures)

    def check_finite(self, figures: dict[str, float]) -> None:
        """Stop a run whose loss is no longer a number, and say which part broke first."""
        if math.isfinite(sum(figures.values()) + self.validated.get("val/loss", 0.0)):
            return
        what = f"the {self.defence.name} penalty" if self.sums["train"].penalty_broke_first() else "the cross-entropy"
        raise UserError(
            f"{what} is no longer a finite number in epoch {self.current_epoch + 1}: "
            f"lower --lr or --lambda, or raise --epsilon"
        )

    def means(self, stage: str) -> tuple[float, float, float]:
        """(mean loss, mean penalty, accuracy) of the epoch, over all devices."""
        sums = torch.as_tensor(self.all_gather(self.sums[stage].total(self.device))).view(-1, 4)  # (devices, 4)
        count, loss, penalty, correct = sums.sum(dim=0).tolist()
        return loss / max(count, 1), penalty / max(count, 1), correct / max(count, 1)

    def check_trained(self) -> None:
        """Refuse a run in which nothing was trained, or whose penalty was on and did nothing, the field's worst bug."""
        if self.global_step == 0:
            raise UserError("not a single step was trained; look at --limit-train and --trainer.*")
        low, high = self.penalty_range.tolist()
        if self.penalised and self.global_step > 1 and not high - low > 1e-7 * abs(high):
            raise UserError(
                f"the {self.defence.name} penalty never moved: it was {high:.6g} in all {self.global_step} steps, "
                f"so λ={self.lam:g} did nothing; representations may be dead or clamped "
                f"(try another --lr, --epsilon or --cut)"
            )

    # ------------------------------------------------------------------ validation

    def on_validation_epoch_start(self) -> None:
        self.sums["val"] = EpochSums()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, y = batch
        logits, y = positions(self(x), y), y.flatten()
        self.sums["val"].add(logits, y, F.cross_entropy(logits, y), logits.new_zeros(()))

    def on_validation_epoch_end(self) -> None:
        loss, _, accuracy = self.means("val")
        self.validated = {"val/loss": loss, "val/accuracy": accuracy}
        self.log_dict(self.validated)

    # ------------------------------------------------------------------ checkpoint and optimiser

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["history"] = self.history

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.history = list(checkpoint["history"])

    def configure_optimizers(self) -> Any:
        options = self.hparams
        common = {
            "lr": options["lr"],
            "weight_decay": options["weight_decay"],
            # one call a step, not a loop over the parameters; beside fp16's scaler it would rule out gradient clipping
            "fused": self.trainer.precision != "16-mixed",
        }
        optimiser: torch.optim.Optimizer
        trained = [*self.network.parameters(), *self.defence.parameters()]
        if options["optimiser"] == "adam":
            optimiser = torch.optim.AdamW(trained, **common)
        else:
            optimiser = torch.optim.SGD(trained, momentum=options["momentum"], **common)
        if not options["milestones"]:
            return optimiser
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, options["milestones"], options["gamma"])
        return {"optimizer": optimiser, "lr_scheduler": schedule}


def positions(values: Tensor, y: Tensor) -> Tensor:
    """Values of examples as values of what is classified: (B, …) as they are, (B, T, …) for a text as (B·T, …)."""
    return values.flatten(0, 1) if y.ndim == 2 else values
