"""The decoder as an attack: `paper` is the GAN, `adaptive` whatever decodes the attacker's own held-out data best."""

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from sweetspot.attacks.decoder.networks import InverseNetwork
from sweetspot.attacks.decoder.training import (
    BATCH,
    GAN_EPOCHS,
    DecoderModule,
    GanModule,
    InverseModule,
    inverse_loss,
    random_batches,
    train_decoder,
)
from sweetspot.attacks.threat_model import ATTACKS, Attack, AttackerData, Reconstruction, Victim, checked, device_of
from sweetspot.datamodules.mapped import hash_into, part_of
from sweetspot.errors import UserError
from sweetspot.files import save_tensors
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.options import option
from sweetspot.runs.checkpoints import restored

STEPS = {"fast": 300, "normal": 900, "thorough": 4500}  # of the inverse network, 128 inputs each
HELD_OUT = 1000  # inputs of the attacker's own, at most a tenth, on which the better decoder shows
MARKED = 4  # inputs that tell one release from another
STATISTICS = 5000  # inputs that the scale of z is taken from
FORMAT = 1  # raised when decoders are built or trained in another way: old files are then not taken for new ones


@ATTACKS("decoder")
class Decoder(Attack):
    """Inversion by a network trained on inputs of the attacker's own.

    `paper` is the GAN of Eq. 7; `adaptive` a plain inverse network and, where the budget is thorough or a trained GAN
    lies in the cache, the GAN too: the one that decodes held-out data better is used.
    """

    recipes: ClassVar[tuple[str, ...]] = ("paper", "adaptive")
    usual: ClassVar[tuple[str, ...]] = ("adaptive",)  # the GAN's 50 epochs are on request
    decoder_epochs: int = option(GAN_EPOCHS, "epochs of the GAN; the paper has 50", least=1)

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.networks: dict[str, InverseNetwork] = {}
        self.held_out: dict[str, float] = {}  # the loss of each on the attacker's held-out data
        self.from_cache: dict[str, bool] = {}

    @property
    def kinds(self) -> list[str]:
        """Which decoders are trained, or taken from the cache."""
        if self.recipe == "paper":
            return ["gan"]
        cached = self.cache is not None and any(self.cache.glob(f"decoder-gan-{self.decoder_epochs}-{self.seed}-*.pt"))
        return ["inverse", "gan"] if cached or self.budget == "thorough" else ["inverse"]

    @property
    def settings(self) -> dict[str, Any]:
        inverse = {"budget": self.budget} if "inverse" in self.kinds else {}
        gan = {"epochs": self.decoder_epochs} if "gan" in self.kinds else {}
        return {"recipe": self.recipe, "networks": self.kinds, **inverse, **gan, "seed": self.seed}

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            raise UserError(
                f"the {self.name} attack needs inputs of the attacker's own, and this threat model grants none"
            )
        held_out, own = self.divided(data)
        compared = held_out if len(held_out.y) else own
        for kind in self.kinds:
            file = self.file(kind, victim, own)
            if kind == "gan" and self.recipe == "adaptive" and self.budget != "thorough" and not file.is_file():
                continue  # one of another victim, or of other data
            network = self.decoder(kind, victim, own, file)
            loss = self.loss_on(compared.images(slice(None)).to(device_of(victim)), network, victim)
            if math.isfinite(loss):
                self.networks[kind], self.held_out[kind] = network, loss
            else:
                file.unlink(missing_ok=True)
        if not self.networks:
            raise UserError(f"{self.key} diverged: its outputs are no numbers; try another --attack-seed")

    def divided(self, data: AttackerData) -> tuple[AttackerData, AttackerData]:
        """The attacker's inputs that are held out, none where there are fewer than ten, and those it is trained on."""
        order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(self.seed))
        parts = order.tensor_split([min(HELD_OUT, len(order) // 10)])
        held_out, own = (AttackerData(part_of(data.x, part), data.y[part]) for part in parts)
        return held_out, own

    @torch.no_grad()
    def loss_on(self, x: Tensor, network: InverseNetwork, victim: Victim) -> float:
        """How far a decoder is from inputs x (B, …), seen through the victim."""
        return inverse_loss(network(victim.released(x)), x).item()

    def decoder(self, kind: str, victim: Victim, own: AttackerData, file: Path) -> InverseNetwork:
        """A trained decoder, from the cache where it is there."""
        with torch.no_grad():
            sample = own.sample(STATISTICS).to(device_of(victim))
            z = torch.cat([victim.released(part) for part in sample.split(BATCH)])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = InverseNetwork(tuple(z.shape[1:]), victim.shape, steadied=kind == "gan").to(device_of(victim))
            network.learn_scale(z)
            self.from_cache[kind] = restored(network, file)
            if not self.from_cache[kind]:
                unfinished = None if self.cache is None else file.with_suffix(".unfinished")
                self.train(kind, network, victim, own, unfinished)
                if unfinished is not None:
                    save_tensors(file, network.state_dict())
                    unfinished.unlink(missing_ok=True)
        return network.eval().requires_grad_(False)

    def train(
        self, kind: str, network: InverseNetwork, victim: Victim, own: AttackerData, unfinished: Path | None
    ) -> None:
        """Train one decoder from scratch, or from where it was stopped."""
        generator = torch.Generator().manual_seed(self.seed)
        if kind == "gan":
            steps = self.decoder_epochs * max(1, len(own.y) // BATCH)
            module: DecoderModule = GanModule(victim, network)
        else:
            steps = STEPS[self.budget]
            module = InverseModule(victim, network, steps)
        batches = random_batches(len(own.y), steps, generator)
        train_decoder(module, victim, batches, own, self.key, unfinished)

    def file(self, kind: str, victim: Victim, own: AttackerData) -> Path:
        """Where a trained decoder is kept: the name follows from everything that made it."""
        length = self.decoder_epochs if kind == "gan" else self.budget
        made_with = hashlib.sha256(f"{FORMAT} {kind} {length} {self.seed}".encode())
        for tensor in (*victim.encoder.state_dict().values(), own.x):
            hash_into(made_with, tensor)
        if (mark := mark_of_release(victim, own)) is not None:
            made_with.update(mark)
        folder = self.cache if self.cache is not None else Path(os.devnull)  # where nothing is found
        return folder / f"decoder-{kind}-{length}-{self.seed}-{made_with.hexdigest()[:8]}.pt"

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        if not self.networks:
            raise UserError(f"the {self.name} attack must be prepared before it can reconstruct")
        began = time.perf_counter()
        better = min(self.networks, key=self.held_out.__getitem__)
        with torch.no_grad():
            x = torch.cat([self.networks[better](part) for part in checked(z).split(BATCH)])
        trace = {"network": better, "held_out_loss": self.held_out, "from_cache": self.from_cache}
        return Reconstruction(x, victim.residual(x, z), time.perf_counter() - began, trace)


@torch.no_grad()
def mark_of_release(victim: Victim, own: AttackerData) -> bytes | None:
    """What a release makes of a few representations, by which any release is known; None where it does nothing."""
    z = victim.encoder(own.sample(MARKED).to(device_of(victim)))
    with draws_from(0, z.device):
        released = victim.release(z)
    return None if torch.equal(released, z) else released.cpu().contiguous().numpy().tobytes()
