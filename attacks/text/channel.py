"""What the channel between client and server does to hidden states: precision and noise, before anyone leaks them."""

from __future__ import annotations

import torch
from torch import Tensor

from errors import UserError

DTYPES = ("fp32", "fp16", "bf16", "int8")


def through_channel(z: Tensor, dtype: str = "fp32", noise: float = 0.0, seed: int = 0) -> Tensor:
    """The states (…, d) as they arrive: rounded to `dtype`, and with Gaussian noise.

    Args:
        z: what the client computed.
        dtype: fp32, fp16, bf16, or int8 (one scale a position, by its largest entry).
        noise: the noise's standard deviation, as a fraction of the states' own root mean square.
        seed: draws the noise.

    Example:
        >>> through_channel(torch.tensor([[1.0, 0.004]]), "int8")
        tensor([[1.0000, 0.0079]])
    """
    if dtype not in DTYPES:
        raise UserError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype}")
    if not 0 <= noise < float("inf"):
        raise UserError(f"--noise must be a number of at least 0; got {noise:g}")
    if noise > 0:
        drawn = torch.randn(z.shape, generator=torch.Generator().manual_seed(seed)).to(z)
        z = z + noise * z.square().mean().sqrt() * drawn
    if dtype == "int8":
        scale = z.abs().amax(dim=-1, keepdim=True).clamp_min(1e-12) / 127
        return (z / scale).round().clamp(-127, 127) * scale
    return z.to({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]).to(z.dtype)


def channel_noise(z: Tensor, dtype: str, noise: float) -> float:
    """The root mean square of what the channel adds to an entry; an attacker knows its format and its noise."""
    size = z.square().mean().sqrt().item()
    step = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8}.get(dtype)
    rounding = size * step / 3**0.5 if step is not None else z.abs().amax(dim=-1).mean().item() / 127 / 12**0.5
    return float((rounding**2 + (noise * size) ** 2) ** 0.5)
