"""SplitModule: one LightningModule that trains every split network, with cross-entropy + λ · penalty(cut layer)."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.datamodules.augment import Augmentation, augmentation_seed
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences import Defence
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.epoch_sums import EpochSums
from sweetspot.lightning_modules.networks import NETWORKS, SplitNetwork, build_network
from sweetspot.lightning_modules.networks.language import SplitLanguageModel, language_model

WARM_UP = 0.05  # of the steps: Adam's first ones, with averages of few gradients, are taken small
SAMPLE_BATCH = 1000  # examples looked at together, before an epoch


class SplitModule(lightning.LightningModule):
    """A split network, its defence and how both are trained; plain arguments, so that a checkpoint rebuilds it.

    Args:
        network: the network's name, as `--network` takes it.
        shape: the shape of one input.
        classes: how many classes there are.
        cut: where the network is cut, a block's number, or a layer's or a submodule's name.
        head: the head's variant (`default`, and for the MLP `deeper` and `wider`).
        pixels: mean and standard deviation of the images by channel, None for vectors.
        defence: the penalty's name.
        defence_options: the penalty's own options, such as β.
        bottleneck: the client's last layers, such as `120-16`; None for none.
        release: what happens to z before it leaves, in order, each with its name and options.
        epochs: how many passes over the data there will be: noise grows during the first part of them.
        augment: random changes of training images, of `AUGMENTATIONS`.
        train_part: `all`, or `head`: the client's part of the network stays as it is, and the weights that it shares
            with the server, as a language model's last matrix often is its embeddings.
        lam: λ, the weight of the penalty.
        lr: SGD's learning rate.
        momentum: SGD's momentum.
        weight_decay: SGD's weight decay.
        milestones: epochs after which the learning rate is multiplied by `gamma`.
        gamma: that factor.
        schedule: `constant`, or `cosine`: the learning rate grows first, and falls to 0 with the last step.
        seed: what every epoch's randomness follows from.
        optimiser: `sgd` or `adam`.
        language: for a language model its `config`, as transformers writes it, its `tokenizer`, as JSON, and where a
            release takes the size of its states away their `sizes` (`state_sizes`), which the server gives back; what
            is classified is then every position, and its class is the next token.
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
        bottleneck: str | None = None,
        release: list[dict[str, Any]] | None = None,
        epochs: int = 1,
        augment: list[str] | None = None,
        train_part: str = "all",
        schedule: str = "constant",
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network: SplitNetwork | SplitLanguageModel
        if language is None:
            self.network = build_network(network, tuple(shape), classes, cut, head, pixels)
        else:
            self.network = language_model(language["config"], cut, language.get("sizes"))
        if len(shape) == 3 and network in NETWORKS:  # others may rely on the usual order, as `x.view(len(x), -1)` does
            self.network.to(memory_format=torch.channels_last)  # convolution and pooling run faster so, on CPU and GPU
        self.defence = Defence(
            tuple(shape), self.cut_shape(), classes, defence, defence_options, bottleneck, release or (),
            is_text=language is not None,
        )  # fmt: skip
        if train_part == "head":
            self.network.encoder.requires_grad_(False)
        self.augmentation = Augmentation(augment, shape) if augment else None
        self.lam = lam
        self.penalised = self.defence.penalty.active and lam > 0
        # the smallest and the largest penalty of any step, for `check_trained`
        self.register_buffer("penalty_range", torch.tensor([math.inf, -math.inf]))
        self.penalty_range: Tensor
        # every epoch's figures, kept in the checkpoint, so that a resumed run has the whole curve
        self.history: list[dict[str, float]] = []
        self.sums = {"train": EpochSums(), "val": EpochSums()}
        self.validated: dict[str, float] = {}  # this epoch's validation figures, where it had a validation

    @torch.no_grad()
    def cut_shape(self) -> tuple[int, ...]:
        """The shape of one representation at the cut."""
        shape, is_text = self.hparams["shape"], self.hparams["language"] is not None
        x = torch.zeros(1, min(shape[0], 2), dtype=torch.long) if is_text else torch.zeros(1, *shape)
        with evaluating(self.network):
            return tuple(self.network.encoder(x).shape[1:])

    def forward(self, x: Tensor) -> Tensor:
        """The server's logits for inputs x (B, …): the head sees what the defence releases."""
        return self.answer(self.encode(x))

    def encode(self, x: Tensor) -> Tensor:
        """What leaves the client for inputs x (B, …): the squeezed and released cut layer."""
        z: Tensor = self.defence.release(self.defence.squeeze(self.network.encoder(x)))
        return z

    def answer(self, z: Tensor) -> Tensor:
        """The server's logits for what was released."""
        logits: Tensor = self.network.head(self.defence.widen(z))
        return logits

    # ------------------------------------------------------------------ training

    def on_train_epoch_start(self) -> None:
        # One seed an epoch (and a rank): a run resumed at epoch k draws what an unbroken run draws there.
        torch.manual_seed((self.hparams["seed"] * 1_000_003 + self.current_epoch) * 1009 + self.global_rank)
        self.sums["train"] = EpochSums()
        self.validated = {}
        if self.penalised and self.defence.penalty.wants_sample:
            self.defence.penalty.begin_epoch(*self.sample_of_training(self.defence.penalty.wants_sample))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        done = self.current_epoch + batch_idx / self.trainer.num_training_batches
        self.defence.release.at(done / self.hparams["epochs"])

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        x = self.augmented(x, batch_idx)
        z = self.defence.squeeze(self.network.encoder(x))
        # once an epoch a release is watched: one that is on and does nothing is found out by `check_trained`
        is_last = batch_idx == self.trainer.num_training_batches - 1
        released = self.defence.release.watch(z) if is_last else self.defence.release(z)
        logits = self.answer(released)
        z, released, logits, y = positions(z, y), positions(released, y), positions(logits, y), y.flatten()
        loss = F.cross_entropy(logits, y)
        if not self.penalised:
            self.sums["train"].add(logits, y, loss, loss.new_zeros(()))
            return loss
        self.defence.penalty.learn(released, x)
        penalty = self.defence.penalty.value(z, y, x, released)
        if not penalty.requires_grad:
            name = self.defence.penalty.title
            raise UserError(f"the {name} penalty does not depend on the cut layer: λ={self.lam:g} does nothing")
        self.sums["train"].add(logits, y, loss, penalty)
        return loss + self.lam * penalty

    def augmented(self, x: Tensor, step: int) -> Tensor:
        """Training inputs as `--augment` changes them in this step of the epoch."""
        if self.augmentation is None:
            return x
        seed = augmentation_seed(self.hparams["seed"], self.current_epoch, step, self.global_rank)
        with draws_from(seed, x.device):
            return self.augmentation(x)

    @torch.no_grad()
    def sample_of_training(self, count: int) -> tuple[Tensor, Tensor]:
        """Representations behind the bottleneck (≤ count, …) and classes of training examples."""
        x, y = self.trainer.datamodule.train  # type: ignore[attr-defined]
        chosen = torch.randperm(len(y))[:count]
        with evaluating(self.network):
            parts = [
                self.defence.squeeze(self.network.encoder(scaled(part.to(self.device))))
                for part in x[chosen].split(SAMPLE_BATCH)
            ]
        return torch.cat(parts), y[chosen].to(self.device)

    def on_train_epoch_end(self) -> None:
        loss, penalty, accuracy = self.means("train")
        low, high = self.sums["train"].penalty_range()
        self.penalty_range[0].clamp_(max=low)
        self.penalty_range[1].clamp_(min=high)
        figures = {"train/loss": loss, "train/accuracy": accuracy}
        if self.penalised:
            figures[f"train/{self.defence.penalty.title}"] = penalty  # a defence logs its own quantity
        self.log_dict(figures)
        self.history.append({"epoch": self.current_epoch, **figures, **self.validated})
        self.check_finite(figures)

    def check_finite(self, figures: dict[str, float]) -> None:
        """Stop a run whose loss is no longer a number, and say which part broke first."""
        if math.isfinite(sum(figures.values()) + self.validated.get("val/loss", 0.0)):
            return
        what = (
            f"the {self.defence.penalty.title} penalty"
            if self.sums["train"].penalty_broke_first()
            else "the cross-entropy"
        )
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
        """Refuse a run in which nothing was trained, or whose defence was on and did nothing, the field's worst bug."""
        if self.global_step == 0:
            raise UserError("not a single step was trained; look at --limit-train and --trainer.*")
        if (idle := self.defence.release.idle()) is not None:
            raise UserError(
                f"--release {idle.title} was on and changed nothing in training: leave it out, or make it stronger "
                f"({', '.join(f'--{name} {value}' for name, value in idle.record().items()) or 'it has no options'})"
            )
        low, high = self.penalty_range.tolist()
        if self.penalised and self.global_step > 1 and not high - low > 1e-7 * abs(high):
            raise UserError(
                f"the {self.defence.penalty.title} penalty never moved: it was {high:.6g} in all {self.global_step} "
                f"steps, so λ={self.lam:g} did nothing; {self.defence.penalty.if_it_never_moved}"
            )

    # ------------------------------------------------------------------ validation

    def on_validation_epoch_start(self) -> None:
        self.sums["val"] = EpochSums()
        self.defence.release.at(1.0)  # what is measured is what will leave the client

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
        if own := self.defence.penalty.own_state():
            checkpoint["penalty"] = own

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.history = list(checkpoint["history"])
        if "penalty" in checkpoint:
            self.defence.penalty.load_own_state(checkpoint["penalty"])

    def on_fit_end(self) -> None:
        self.defence.release.at(1.0)

    def configure_optimizers(self) -> Any:
        options = self.hparams
        common = {
            "lr": options["lr"],
            "weight_decay": options["weight_decay"],
            # one call a step, not a loop; in mixed precision Lightning refuses to clip gradients beside it
            "fused": not str(self.trainer.precision).endswith("-mixed"),
        }
        optimiser: torch.optim.Optimizer
        every = [*self.network.parameters(), *self.defence.trained_with_the_network()]
        trained = [parameter for parameter in every if parameter.requires_grad]
        if options["optimiser"] == "adam":
            optimiser = torch.optim.AdamW(trained, **common)
        else:
            optimiser = torch.optim.SGD(trained, momentum=options["momentum"], **common)
        if options["schedule"] == "cosine":
            along = functools.partial(cosine, steps=int(self.trainer.estimated_stepping_batches))
            schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, along)
            return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
        if not options["milestones"]:
            return optimiser
        by_epoch = torch.optim.lr_scheduler.MultiStepLR(optimiser, options["milestones"], options["gamma"])
        return {"optimizer": optimiser, "lr_scheduler": by_epoch}


def cosine(step: int, steps: int) -> float:
    """The part of the learning rate at a step: up to all of it over the first of the steps, then down to 0.

    Example:
        >>> [round(cosine(step, 100), 3) for step in (0, 4, 5, 52, 99)]
        [0.2, 1.0, 1.0, 0.508, 0.0]
    """
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """The module in evaluation mode, and back in the mode it was in: Lightning trains in whatever mode it finds."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


def positions(values: Tensor, y: Tensor) -> Tensor:
    """Values of examples as values of what is classified: (B, …) as they are, (B, T, …) for a text as (B·T, …)."""
    return values.flatten(0, 1) if y.ndim == 2 else values
