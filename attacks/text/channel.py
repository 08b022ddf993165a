"""What the channel between client and server does to hidden states: precision and noise, before anyone leaks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.text.probe import states_and_tokens
from sweetspot.errors import UserError, check_one_of
from sweetspot.lightning_modules.defences.releases import channel_name, channel_release
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.runs.choices import DTYPES

UNIT_SEQUENCES = 32  # of some text, from which the unit of noise is measured


@dataclass(frozen=True)
class Channel:
    """Precision and noise of what leaves the client.

    Args:
        dtype: fp32, fp16, bf16, or int8 (one scale a position, by its largest entry).
        noise: the standard deviation of Gaussian noise, in units,
        unit: which is one number for a model and its cut (`noise_unit`), whatever states are sent.
    """

    dtype: str = "fp32"
    noise: float = 0.0
    unit: float = 1.0

    def __post_init__(self) -> None:
        check_one_of("--dtype", self.dtype, DTYPES)
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"--noise must be a number of at least 0; got {self.noise:g}")

    @classmethod
    def named(cls, name: str, unit: float = 1.0) -> Channel:
        """The channel of a name: a precision, or a noise level.

        Example:
            >>> Channel.named("int8"), Channel.named("0.1")
            (Channel(dtype='int8', noise=0.0, unit=1.0), Channel(dtype='fp32', noise=0.1, unit=1.0))
        """
        return cls(dtype=name, unit=unit) if name in DTYPES else cls(noise=float(name), unit=unit)

    @property
    def name(self) -> str:
        """How results call it."""
        return channel_name(self.dtype if self.noise == 0 else str(self.noise))

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on an entry of the states."""
        return self.noise * self.unit

    def __call__(self, z: Tensor, seed: int = 0) -> Tensor:
        """The states (…, d) as they arrive; `seed` draws the noise.

        Example:
            >>> Channel("int8")(torch.tensor([[1.0, 0.004]]))
            tensor([[1.0000, 0.0079]])
        """
        return self.opened(seed)(z)

    def opened(self, seed: int) -> Callable[[Tensor], Tensor]:
        """The channel for one tensor after another: each gets noise of its own, all of it drawn from one seed."""
        generator = torch.Generator().manual_seed(seed)

        def send(z: Tensor) -> Tensor:
            if self.noise > 0:
                z = z + self.sigma * torch.randn(z.shape, generator=generator).to(z)
            return self.rounded(z)

        return send

    def rounded(self, z: Tensor) -> Tensor:
        """The states (…, d) in the channel's precision, a position at a time."""
        if self.dtype == "fp32":
            return z
        rounded: Tensor = channel_release(self.dtype, self.unit)(z)
        return rounded

    def spread(self, z: Tensor) -> float:
        """The root mean square of what the channel added to an entry of the states z that arrived (…, d).

        An attacker knows its format and its noise, and that z² has both in it, the states and the noise.

        Example:
            >>> Channel(noise=0.5, unit=2.0).spread(torch.full((100, 100), 2.0))
            1.0
        """
        # the median position: in models of Llama's kind the first is a hundred times larger than the others
        size = (z.square().mean(dim=-1).median() - self.sigma**2).clamp_min(0.0).sqrt().item()
        step = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8}.get(self.dtype)
        rounding = size * step / 3**0.5 if step is not None else z.abs().amax(dim=-1).median().item() / 127 / 12**0.5
        rounding *= 2  # positions differ in size, and this is one of them: an upper estimate for nearly all
        return float((rounding**2 + self.sigma**2) ** 0.5)


def noise_unit(model: SplitLanguageModel, sequences: Sequence[Sequence[int]]) -> float:
    """The root mean square of the released states at ordinary positions, over the first of some token sequences.

    First positions are left out: in models of Llama's kind their states are a hundred times larger.
    """
    states, _ = states_and_tokens(model, [torch.as_tensor(each) for each in sequences[:UNIT_SEQUENCES]])
    return states.double().square().mean().sqrt().item()


def within_noise(noise: float, width: int) -> float:
    """The MSE of a state of `width` entries that noise of this standard deviation explains: four of its own above 1."""
    return noise**2 * (1 + 4 * math.sqrt(2 / width))
