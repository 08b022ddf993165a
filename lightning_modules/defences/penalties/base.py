"""Penalty: what joins the loss with weight λ while the network trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from sweetspot.errors import UnfitError
from sweetspot.lightning_modules.defences.part import Part
from sweetspot.registries import PENALTIES as PENALTIES


@dataclass(frozen=True)
class Place:
    """Where a penalty is put.

    Args:
        x_shape: the shape of one input.
        z_shape: the shape of one representation, behind the bottleneck.
        classes: how many classes there are.
        sigma: the standard deviation of the Gaussian release, in units of z as it is; None where nothing like it is
            released.
        is_text: whether inputs are tokens, and a class is the next of them.
    """

    x_shape: tuple[int, ...]
    z_shape: tuple[int, ...]
    classes: int
    sigma: float | None = None
    is_text: bool = False


class Penalty(Part):
    """The base of every penalty; by itself there is none. λ, its weight, is not its own.

    A subclass overrides `penalty`, and where it keeps something that depends on shapes, `put`.
    """

    if_it_never_moved: ClassVar[str] = "representations may be dead (try another --lr or --cut)"
    active: ClassVar[bool] = True  # whether there is anything to add; it is logged, and it must move
    takes_text: ClassVar[bool] = True  # whether it makes sense where inputs are tokens, and classes too
    wants_sample: ClassVar[int] = 0  # how many training examples `begin_epoch` gets; 0: it is not called
    sets_scale: ClassVar[bool] = False  # whether it sets the size of z itself, so that noise is added to z as it is
    needs_noise: ClassVar[bool] = False  # whether it measures in the σ of a Gaussian release

    @classmethod
    def check_fits(cls, sigma: float | None, is_text: bool) -> None:
        """Refuse a place where it makes no sense; the arguments are those of `Place`."""
        if is_text and not cls.takes_text:
            title = cls.name.rpartition(":")[2]
            raise UnfitError(f"--defence {title} looks at images or vectors; a language model's inputs are tokens")
        if cls.needs_noise and sigma is None:
            raise UnfitError(
                f"--defence {cls.name} measures in the noise that is released: add --release gaussian --sigma 1"
            )

    def put(self, place: Place) -> None:
        """Told once where it acts: the time to make parameters, or to refuse what makes no sense."""
        self.check_fits(place.sigma, place.is_text)

    def least_batch(self, classes: int) -> int:
        """How many examples a class-balanced batch needs, on each device, for the penalty to mean something."""
        return 1

    def left_out(self, classes: int, batch: int) -> int:
        """How many examples of a class-balanced batch enter no pair of the penalty."""
        return 0

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """A scalar that joins the loss, from z (B, …) behind the bottleneck, classes y (B,) and inputs x (B, …).

        One that does not depend on z stops the training with a line that says so: nothing is penalised in silence.
        """
        return z.new_zeros(())

    def value(self, z: Tensor, y: Tensor, x: Tensor, released: Tensor) -> Tensor:
        """The penalty where what was released of z is known too, for one that looks at it."""
        return self.penalty(z, y, x)

    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters that the penalty trains by itself: the network's optimiser leaves them alone."""
        return []

    def learn(self, released: Tensor, x: Tensor) -> None:
        """A step of whatever the penalty trains by itself, before it is asked for its value."""

    def begin_epoch(self, z: Tensor, y: Tensor) -> None:
        """Told at the start of an epoch what a sample of the training set looks like at the cut, if `wants_sample`."""

    def own_state(self) -> dict[str, Any]:
        """What a checkpoint keeps beside parameters and buffers, such as an optimiser's state."""
        return {}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what `own_state` gave."""


@PENALTIES("none")
class NoPenalty(Penalty):
    """Nothing joins the loss."""

    active = False
