"""What an attacker sees of a defended language model: every weight, and the states as the defence releases them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.lightning_modules.networks.language import Encoder, SplitLanguageModel, shallow

LOOKED_AT = 16  # states whose release tells two defences apart


class ReleasedEncoder(nn.Module):
    """The client's part and its release: what `Encoder` takes → what leaves the client (B, T, d), noise left out.

    Args:
        encoder: the client's part.
        release: what happens to each position by itself.
    """

    def __init__(self, encoder: Encoder, release: Chain) -> None:
        super().__init__()
        self.encoder, self.release = encoder, release

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        return self.release.expected(self.encoder(*inputs, **options))


def as_released(model: SplitLanguageModel, release: Chain) -> SplitLanguageModel:
    """The model whose encoder gives what leaves the client; all weights are shared with the one that is given.

    Whatever an attack computes, it computes with this one: proposals, candidates, gradients, margins. Where nothing
    happens on release, it is the model itself.
    """
    if not len(release):
        return model
    released = shallow(model, {"encoder": ReleasedEncoder(model.encoder, release)})
    assert isinstance(released, SplitLanguageModel)
    return released


@torch.no_grad()
def release_digest(model: SplitLanguageModel) -> bytes:
    """A name for what happens on release: nothing where nothing does, else by the releases' kinds and what they do.

    What it does to fixed states shows settings that are neither weights nor buffers.
    """
    if not isinstance(model.encoder, ReleasedEncoder):
        return b""
    release, weight = model.encoder.release, model.embeddings.weight
    states = torch.randn(1, LOOKED_AT, model.width, generator=torch.Generator().manual_seed(0)).to(weight)
    with draws_from(0, weight.device):
        seen = release(states)
    kind = ", ".join(f"{type(each).__module__}.{type(each).__qualname__}" for each in release)
    return hashlib.sha256(kind.encode() + seen.float().cpu().contiguous().numpy().tobytes()).digest()
