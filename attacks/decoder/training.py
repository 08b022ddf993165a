"""How the decoders are trained: an inverse network by ℓ1 + SSIM, and the paper's GAN (Eq. 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from sweetspot.attacks.decoder.networks import Discriminator, InverseNetwork
from sweetspot.attacks.decoder.unfinished import Unfinished
from sweetspot.attacks.threat_model import AttackerData, Victim, device_of
from sweetspot.datamodules.tensors import TensorBatches, scaled
from sweetspot.lightning_modules.ssim import WINDOW, structural_dissimilarity
from sweetspot.progress import steps_shown

BATCH = 128
PEAK_LR = 3e-3  # of the inverse network's one cycle
HELD = 2**30  # bytes of representations that are kept while a decoder learns
XI = 10.0  # ξ, what Eq. 7 weighs its two ℓ1 terms with
GAN_LR, GAN_EPOCHS = 2e-3, 50
GAN_BETAS = (0.5, 0.999)  # what GANs are trained with since DCGAN; the paper only says Adam


def inverse_loss(recovered: Tensor, original: Tensor) -> Tensor:
    """What an inverse network minimises: ℓ1 + (1 − SSIM)/2 for images, the squared error for vectors."""
    if original.ndim == 2:
        return F.mse_loss(recovered, original)
    loss = F.l1_loss(recovered, original)
    if min(original.shape[-2:]) >= WINDOW:
        loss = loss + 0.5 * structural_dissimilarity(recovered, original)
    return loss


class DecoderModule(lightning.LightningModule):
    """A decoder that learns from the attacker's inputs, seen through the victim.

    Args:
        victim: whose answers are decoded; not a part of the module, so neither trained nor saved with it.
        network: the decoder.
    """

    def __init__(self, victim: Victim, network: InverseNetwork) -> None:
        super().__init__()
        self.victim, self.network = Unregistered(victim), network
        self.is_represented = False  # whether batches bring what the encoder makes of their inputs

    def seen(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The inputs of a batch, and what leaves the client for them: a fresh draw, where the release is random."""
        x = scaled(batch[0])
        with torch.no_grad():
            return x, self.victim.released(batch[1]) if self.is_represented else self.victim.answer(x)


class InverseModule(DecoderModule):
    """A plain inverse network: it needs the victim's answers, not its weights."""

    def __init__(self, victim: Victim, network: InverseNetwork, steps: int) -> None:
        super().__init__(victim, network)
        self.steps = steps

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, z = self.seen(batch)
        return inverse_loss(self.network(z), x)

    def configure_optimizers(self) -> Any:
        optimiser = torch.optim.Adam(self.network.parameters(), fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_LR, total_steps=self.steps + 1)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class GanModule(DecoderModule):
    """Decoder G and discriminator D in turn, Eq. 7:

    −mean(log D(x) + log(1 − D(G(z)))) + ξ‖x − G(z)‖₁ + ξ‖z − Φ(G(z))‖₁, with Φ the victim's encoder.

    D descends the first term. G descends the ℓ1 terms (means over entries: the paper does not say) and −log D(G(z)),
    which has the same fixed points as its part of the first term and a gradient when D is sure.
    """

    def __init__(self, victim: Victim, network: InverseNetwork, xi: float = XI) -> None:
        super().__init__(victim, network)
        self.automatic_optimization, self.xi = False, xi
        self.discriminator = Discriminator(victim.shape)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, z = self.seen(batch)
        recovered = self.network(z)
        for_network, for_discriminator = self.optimizers()  # type: ignore[attr-defined]
        # in turn: G is judged by the D that has just learned
        self.descend(self.discriminator_loss(x, recovered.detach()), for_discriminator)
        self.descend(self.network_loss(x, z, recovered), for_network)

    def descend(self, loss: Tensor, optimiser: Any) -> None:
        """One step of one of the two."""
        optimiser.zero_grad()
        self.manual_backward(loss)
        optimiser.step()

    def discriminator_loss(self, x: Tensor, recovered: Tensor) -> Tensor:
        """−mean(log D(x) + log(1 − D(G(z))))."""
        true, false = self.discriminator(x), self.discriminator(recovered)
        return -(F.logsigmoid(true) + F.logsigmoid(-false)).mean()

    def network_loss(self, x: Tensor, z: Tensor, recovered: Tensor) -> Tensor:
        """−mean(log D(G(z))) + ξ‖x − G(z)‖₁ + ξ‖z − Φ(G(z))‖₁."""
        fooled: Tensor = -F.logsigmoid(self.discriminator(recovered)).mean()
        consistency = F.l1_loss(self.victim.answer(recovered, through=True), z)
        return fooled + self.xi * F.l1_loss(recovered, x) + self.xi * consistency

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(self.network.parameters(), lr=GAN_LR, betas=GAN_BETAS, fused=True),
            torch.optim.Adam(self.discriminator.parameters(), lr=GAN_LR, betas=GAN_BETAS, fused=True),
        ]


class Unregistered:
    """The victim as an attacker's module holds it: none of its submodules."""

    def __init__(self, victim: Victim) -> None:
        self.victim = victim

    def answer(self, x: Tensor, through: bool = False) -> Tensor:
        """The released representations of x (B, …); with `through`, differentiable in x."""
        with torch.set_grad_enabled(through):
            return self.victim.released(x)

    def released(self, h: Tensor) -> Tensor:
        """What leaves the client for what its encoder has made of inputs (B, …)."""
        return self.victim.release(h)


class Steps(Callback):
    """Tells `done` how many batches were trained."""

    def __init__(self, done: Any) -> None:
        self.done = done

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any) -> None:
        self.done(trainer.fit_loop.epoch_loop.total_batch_idx + 1)


@torch.no_grad()
def representations(victim: Victim, data: AttackerData, what: str) -> Tensor | None:
    """What the victim's encoder makes of all of the attacker's inputs (N, …), on the CPU.

    None where that takes more than `HELD` bytes, or where the encoder draws at random: it is asked anew each time then.
    """
    device, size = device_of(victim), min(BATCH, len(data.y))
    first: Tensor = victim.encoder(scaled(data.x[:size].to(device)))
    again: Tensor = victim.encoder(scaled(data.x[:size].to(device)))
    if len(data.y) * first[0].numel() * first.element_size() > HELD or not torch.equal(first, again):
        return None
    held = first.new_empty(len(data.y), *first.shape[1:], device="cpu")
    starts = range(0, len(data.y), size)
    with steps_shown(f"{what}: representations", len(starts)) as done:
        for index, start in enumerate(starts, 1):
            part = data.x[start : start + size].to(device)
            held[start : start + size] = victim.encoder(scaled(part))
            done(index)
    return held


def train_decoder(
    module: DecoderModule,
    victim: Victim,
    batches: list[Tensor],
    data: AttackerData,
    what: str,
    unfinished: Path | None = None,
) -> None:
    """Train a decoder on batches of the attacker's inputs, given by their indices, on the victim's device.

    Where inputs come more than once, the encoder sees each of them once only. With a file for the state of what is
    `unfinished`, the same call after a kill goes on where it was; who has kept the decoder removes it.
    """
    held = representations(victim, data, what) if sum(map(len, batches)) > len(data.y) else None
    module.is_represented = held is not None
    going_on = Unfinished(unfinished, module)
    if going_on.before:
        print(f"{what}: goes on after {going_on.before:,} of {len(batches):,} steps", flush=True)
    batches = batches[going_on.before :]
    with steps_shown(what, len(batches)) as done:
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator=device_of(victim).type,
            strategy=SingleDeviceStrategy(device_of(victim)),
            callbacks=[Steps(done), going_on],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        try:
            trainer.fit(module, train_dataloaders=TensorBatches(data.x, data.y if held is None else held, batches))
        except SystemExit:  # how Lightning ends after Ctrl-C
            raise KeyboardInterrupt from None
    module.to(device_of(victim))  # Lightning leaves it on the CPU


def random_batches(count: int, steps: int, generator: torch.Generator) -> list[Tensor]:
    """Indices of `steps` batches, every input once before any comes again."""
    size = min(BATCH, count)
    passes = -(-steps // (count // size))
    batches = [batch for _ in range(passes) for batch in torch.randperm(count, generator=generator).split(size)]
    return [batch for batch in batches if len(batch) == size][:steps]
