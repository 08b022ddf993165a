"""Defence: what a client does to its cut layer while training (`penalty`) and when z leaves it (`release`)."""

from typing import ClassVar

from torch import Tensor, nn


class Defence(nn.Module):
    """The undefended network, and the base of every defence.

    A subclass overrides `penalty` (and sets `active`), or `release`, or both. λ, the penalty's weight, is not its own.
    """

    name: ClassVar[str] = "none"
    active: ClassVar[bool] = False  # whether there is a penalty to add; it is logged, and it must move

    def least_batch(self, classes: int) -> int:
        """How many examples a class-balanced batch needs, on each device, to hold a pair that the penalty compares."""
        return 1

    def left_out(self, classes: int, batch: int) -> int:
        """How many examples of a class-balanced batch enter no pair of the penalty."""
        return 0

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """A scalar that joins the loss, from the cut layer z (B, …), the classes y (B,) and the inputs x (B, …)."""
        return z.new_zeros(())

    def release(self, z: Tensor) -> Tensor:
        """What the server, and the attacker, gets to see of z."""
        return z


class Release(nn.Module):
    """What a defence releases, as a module: whatever the defence keeps moves between devices with it."""

    def __init__(self, defence: Defence) -> None:
        super().__init__()
        self.defence = defence

    def forward(self, z: Tensor) -> Tensor:
        return self.defence.release(z)
