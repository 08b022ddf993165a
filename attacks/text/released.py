"""What an attacker sees of a defended language model: every weight, and the states as the defence releases them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.bottlenecks import Bottleneck
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.networks.language import Encoder, Head, SplitLanguageModel, shallow

LOOKED_AT = 16  # states whose release tells two defences apart


class ReleasedEncoder(nn.Module):
    """Client, bottleneck and release: what `Encoder` takes → what leaves the client (B, T, k), noise left out.

    Args:
        encoder: the client's part.
        release: what happens to each position by itself.
        squeeze: the client's side of a bottleneck.
    """

    def __init__(self, encoder: Encoder, release: Chain, squeeze: nn.Module) -> None:
        super().__init__()
        self.encoder, self.release, self.squeeze = encoder, release, squeeze

    def drawn(self, ids: Tensor) -> Tensor:
        """What really leaves the client for tokens (B, T), noise and all."""
        z: Tensor = self.release(self.squeeze(self.encoder(ids)))
        return z

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        return self.release.expected(self.squeeze(self.encoder(*inputs, **options)))


class WideningHead(nn.Module):
    """The server's part behind a bottleneck: released states (B, T, k) → logits (B, T, V).

    Args:
        head: the server's part.
        widen: the server's side of the bottleneck.
    """

    def __init__(self, head: Head, widen: nn.Module) -> None:
        super().__init__()
        self.head, self.widen, self.lm_head = head, widen, head.lm_head

    def hidden(self, z: Tensor) -> Tensor:
        """What the last matrix is applied to, (B, T, d)."""
        return self.head.hidden(self.widen(z))

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.hidden(z))
        return logits


def as_released(model: SplitLanguageModel, release: Chain, bottleneck: Bottleneck | None = None) -> SplitLanguageModel:
    """The model whose encoder gives what leaves the client; all weights are shared with the one that is given.

    Whatever an attack computes, it computes with this one: proposals, candidates, gradients, margins. Where nothing
    is squeezed and nothing happens on release, it is the model itself.
    """
    if not len(release) and bottleneck is None:
        return model
    squeeze = nn.Identity() if bottleneck is None else bottleneck.squeeze
    parts: dict[str, nn.Module] = {"encoder": ReleasedEncoder(model.encoder, release, squeeze)}
    if bottleneck is not None:
        parts["head"] = WideningHead(model.head, bottleneck.widen)
    released = shallow(model, parts)
    assert isinstance(released, SplitLanguageModel)
    released.state_width = model.state_width if bottleneck is None else bottleneck.width
    return released


def release_noise(model: SplitLanguageModel) -> float:
    """The standard deviation of what a model's release adds to an entry at random; 0 where there is none."""
    return model.encoder.release.noise if isinstance(model.encoder, ReleasedEncoder) else 0.0


@torch.no_grad()
def release_digest(model: SplitLanguageModel) -> bytes:
    """A name for what happens on release: nothing where nothing does, else by the releases' kinds and what they do.

    What it does to fixed states shows settings that are neither weights nor buffers.
    """
    if not isinstance(model.encoder, ReleasedEncoder):
        return b""
    release, weight = model.encoder.release, model.embeddings.weight
    states = torch.randn(1, LOOKED_AT, model.state_width, generator=torch.Generator().manual_seed(0)).to(weight)
    with draws_from(0, weight.device):
        seen = release(states)
    kind = ", ".join(f"{type(each).__module__}.{type(each).__qualname__}" for each in release)
    return hashlib.sha256(kind.encode() + seen.float().cpu().contiguous().numpy().tobytes()).digest()
