"""The threat model as objects: an attack gets a Victim and the released z, never x, and gives back a Reconstruction."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sweetspot.datamodules.tensors import TensorDataModule, scaled
from sweetspot.errors import UserError, check_one_of
from sweetspot.lightning_modules.defences.releases import Chain, Release
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.options import Declared
from sweetspot.registries import ATTACKS as ATTACKS
from sweetspot.registry import is_users_own
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.choices import BUDGETS

SHARE_OF_DEVICE = "SWEETSPOT_SHARE_OF_DEVICE"  # set by a sweep: the part of a GPU, or of the machine, that a run has


@dataclass(frozen=True)
class Victim:
    """What an attacker may see of a trained split network: its weights, and the shape and range of its inputs.

    Args:
        encoder: the client's part, with its weights, in evaluation mode, its weights frozen.
        head: the server's part.
        release: what the defence does to z on its way out, a module or any function; it may draw at random. An
            adaptive attacker goes through it.
        shape: the shape of one input.
        classes: how many classes the server tells apart.
        bounds: the range of an input's entries, None where it has none (vectors).
    """

    encoder: nn.Module
    head: nn.Module
    release: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    classes: int
    bounds: tuple[float, float] | None

    @classmethod
    def from_module(cls, module: SplitModule) -> Victim:
        """The victim inside a trained module."""
        module = module.eval().requires_grad_(False)
        shape = tuple(module.hparams["shape"])
        bounds = (0.0, 1.0) if len(shape) == 3 else None
        encoder, head, bottleneck = module.network.encoder, module.network.head, module.defence.bottleneck
        if bottleneck is not None:
            encoder, head = nn.Sequential(encoder, bottleneck.squeeze), nn.Sequential(bottleneck.widen, head)
        return cls(encoder, head, module.defence.release, shape, module.hparams["classes"], bounds)

    @classmethod
    def from_checkpoint(cls, path: Path) -> Victim:
        """The victim in a run's `last.ckpt`: the same a minute and a month after training."""
        return cls.from_module(load_module(path))

    def to(self, device: torch.device) -> Victim:
        """The same victim on another device, with whatever its release keeps."""
        release = self.release.to(device) if isinstance(self.release, nn.Module) else self.release
        return replace(self, encoder=self.encoder.to(device), head=self.head.to(device), release=release)

    def released(self, x: Tensor) -> Tensor:
        """What leaves the client for x (B, …)."""
        return self.release(self.encoder(x))

    def represent(self, x: Tensor) -> Tensor:
        """What leaves the client for x, flat, (B, …) → (B, d): the attacker goes through the defence's release.

        Of a release that draws at random the expected answer: that is what explains z best, whatever was drawn.
        """
        expected = getattr(self.release, "expected", self.release)
        z: Tensor = expected(self.encoder(x))
        return z.flatten(1)

    def misfit(self, x: Tensor, z: Tensor) -> Tensor:
        """How badly x explains each entry of what was seen, (B, …) × (B, …) → (B, d): what the release says of it.

        A release that says nothing, a plain function, is explained by the squared error.
        """
        if isinstance(self.release, Release | Chain):
            h = self.encoder(x)
            return self.release.misfit(h, z.reshape(h.shape)).flatten(1)
        return (self.represent(x) - z.flatten(1)).square()

    @property
    def power(self) -> float:
        """Of a difference, that `misfit` is: 2, or 1 where absolute differences are the right ones."""
        return self.release.power if isinstance(self.release, Release | Chain) else 2.0

    @property
    def noise(self) -> float:
        """The mean misfit of an entry of the true input; 0 where nothing is added at random."""
        return self.release.unavoidable() if isinstance(self.release, Release | Chain) else 0.0

    def residual(self, x: Tensor, z: Tensor) -> Tensor:
        """‖h(x) − z‖ / ‖z‖ of each, (B,): how well a guess explains what was seen. Needs no ground truth.

        Differences are what the release makes of them: an entry that it left out is not missed.
        """
        with torch.no_grad():
            return norm_of(self.misfit(x, z), self.power) / size_of(z, self.power)


@dataclass(frozen=True)
class AttackerData:
    """Inputs of the attacker's own, distributed as the victim's: the training split, never what is attacked."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, datamodule: TensorDataModule) -> AttackerData:
        """The training split of a dataset."""
        return cls(*datamodule.train)

    def sample(self, count: int) -> Tensor:
        """At most so many of the inputs, as floats, evenly spaced: data are often sorted by class."""
        return self.images(torch.linspace(0, len(self.y) - 1, min(count, len(self.y))).long())

    def images(self, indices: Tensor | slice) -> Tensor:
        """Some of the inputs, as floats."""
        return scaled(self.x[indices])


@dataclass
class Reconstruction:
    """What an attack recovered.

    Args:
        x: the recovered inputs (B, …).
        residual: ‖h(x̂) − z‖ / ‖z‖ of each (B,), a score that needs no ground truth.
        seconds: how long it took.
        trace: whatever the attack recorded on its way.
    """

    x: Tensor
    residual: Tensor
    seconds: float
    trace: dict[str, Any] = field(default_factory=dict)


class Attack(Declared, ABC):
    """`prepare` trains what the attack needs on the attacker's own data, `reconstruct` turns z into inputs.

    `key` is how results call it: `whitebox/paper`, or for a user's own the file and the class, `my_attacks/Median`.

    Args:
        recipe: one of its recipes; not given: the last of those that are usual.
        budget: `fast`, `normal` or `thorough`: how much an attacker who adapts spends.
        seed: of whatever it draws.
        cache: where it may keep what it learned, so that it is learned once.
        given: its own options.
    """

    version: ClassVar[int] = 1  # raised when the same settings begin to mean something else: old results are redone
    recipes: ClassVar[tuple[str, ...]] = ()  # the ways in which it can be run
    usual: ClassVar[tuple[str, ...]] = ()  # those that are run where none is asked for
    is_floor: ClassVar[bool] = False  # whether it knows the label alone: what others recover beyond it is a leak

    def __init__(
        self,
        recipe: str | None = None,
        budget: str = "normal",
        seed: int = 0,
        cache: Path | None = None,
        **given: Any,
    ) -> None:
        if self.recipes:
            recipe = recipe or self.usual[-1]
            check_one_of("recipe", recipe, self.recipes)
        check_one_of("budget", budget, BUDGETS)
        self.recipe, self.budget, self.seed, self.cache = recipe or "", budget, seed, cache
        self.key = key_of(self.name, recipe)
        self.set_options(given)

    def fits(self, victim: Victim) -> bool:
        """Whether the attack has anything to go by with this victim; where it has not, it is left out."""
        return True

    @property
    def has_data(self) -> bool:
        """Whether the attacker has inputs of its own: a threat model of its own, which results name."""
        return True

    def anew(self) -> Attack:
        """The same attack, before it was prepared."""
        return type(self)(self.recipe or None, self.budget, self.seed, self.cache, **self.record())

    @property
    def settings(self) -> dict[str, Any]:
        """What the result depends on, as plain data: results carry it, and a finished attack is known by it."""
        return {"budget": self.budget, "seed": self.seed, **self.record()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.settings.items())})"

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:  # most attacks need nothing
        """Learn from the attacker's data; an attack that cannot do without them refuses here."""

    @abstractmethod
    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        """The inputs behind the released representations z (B, …)."""


class LabelOnly(Attack):
    """An attack that knows the classes and looks at nothing else: what it recovers, the label gives away."""

    is_floor = True
    known: Tensor | None = None

    def tell(self, classes: Tensor) -> None:
        """Say the classes (B,) of the inputs that are attacked next."""
        self.known = classes

    @property
    def classes(self) -> Tensor:
        """The classes that it was told."""
        if self.known is None:
            raise UserError(f"the {self.key} attack must be told the classes before it can reconstruct")
        return self.known


def key_of(name: str, recipe: str | None = None) -> str:
    """How results call an attack.

    Example:
        >>> key_of("whitebox", "paper"), key_of("label"), key_of("files/my_attacks.py:Median")
        ('whitebox/paper', 'label', 'my_attacks/Median')
    """
    if is_users_own(name):
        path, _, own = name.partition(":")
        return f"{Path(path).stem}/{own}"
    return f"{name}/{recipe}" if recipe else name


def norm_of(misfit: Tensor, power: float) -> Tensor:
    """The norm of the differences whose powers are the misfits (B, d) → (B,)."""
    differences = misfit.sqrt() if power == 2 else misfit ** (1 / power)
    norm: Tensor = torch.linalg.vector_norm(differences, ord=power, dim=1)
    return norm


def size_of(z: Tensor, power: float) -> Tensor:
    """‖z‖ in the same norm, (B, …) → (B,), never 0."""
    size: Tensor = torch.linalg.vector_norm(z.flatten(1), ord=power, dim=1).clamp_min(1e-12)
    return size


def checked(z: Tensor) -> Tensor:
    """z, if it can be attacked at all."""
    if not z.isfinite().all():
        raise UserError("the representations hold NaN or infinite values; nothing can be recovered from them")
    return z


@torch.no_grad()
def inputs_at_once(victim: Victim, most: int) -> int:
    """How many inputs, at most `most`, fit into one differentiated pass of the encoder, by what one of them takes."""
    entries = [math.prod(victim.shape)]
    hooks = [
        layer.register_forward_hook(lambda _, __, output: entries.append(entries_of(output)))
        for layer in victim.encoder.modules()
        if not [*layer.children()]
    ]
    try:
        victim.encoder(torch.zeros(1, *victim.shape, device=device_of(victim)))
    finally:
        for hook in hooks:
            hook.remove()
    return max(1, min(most, int(memory_of(device_of(victim)) / (2 * 4 * sum(entries)))))  # float32, values, gradients


def entries_of(output: Any) -> int:
    """How many numbers a layer gave back: a tensor, or several in tuples, lists and dicts."""
    if isinstance(output, Tensor):
        return output.numel()
    if isinstance(output, dict):
        output = output.values()
    elif not isinstance(output, list | tuple):
        return 0
    return sum(map(entries_of, output))


def memory_of(device: torch.device) -> float:
    """Bytes that one pass of an attack may take: at most 4 GiB, and a quarter of this process's share of the device.

    The share does not follow from what is free at the moment: the same machine makes the same passes.
    """
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
    else:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(4 * 2**30, whole * float(os.environ.get(SHARE_OF_DEVICE, 1)) / 4)


def device_of(victim: Victim) -> torch.device:
    """Where the victim's weights are."""
    parts = [part for part in (victim.encoder, victim.head, victim.release) if isinstance(part, nn.Module)]
    tensors = (tensor for part in parts for tensor in (*part.parameters(), *part.buffers()))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))
