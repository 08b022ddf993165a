"""Split language models: any causal LM of transformers, cut after one of its blocks.

    model = SplitLanguageModel(transformers.GPT2LMHeadModel.from_pretrained("gpt2"), cut=6)
    logits = model.head(model.encoder(ids))         # ids (B, T) → z (B, T, d) → logits (B, T, V)

`cut` is how many blocks the client runs (0: only the embeddings); `last` is all of them, before the final norm, and
`final` is after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from sweetspot.errors import UserError

BLOCKS = ("h", "layers")  # what GPT-2 and what Llama and its kin call them
NORMS = ("ln_f", "norm")
NAMING_CODE = ("auto_map", "custom_pipelines", "quantization_config", "kernel_config")  # in a config of transformers


class KeepsNothing(Cache):
    """A cache for passes that need none.

    Without one transformers looks for several texts packed into one by the values of the positions, and every forward
    pass, of client and server, would wait for the device.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return key_states, value_states


class NoPositions(nn.Module):
    """Position embeddings of the server's part: z has its positions in it already."""

    def forward(self, positions: Tensor) -> Tensor:
        return torch.zeros((), device=positions.device)


class Encoder(nn.Module):
    """The client's part: ids (B, T), or embeddings (B, T, d) in their place, → z (B, T, d)."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(
        self,
        ids: Tensor | None = None,
        embeddings: Tensor | None = None,
        past: Cache | None = None,
        first: int = 0,
        rivals: bool = False,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """With `past`, keys and values of a prefix, only what follows it is given, from position `first` on.

        `rivals` are tokens that all stand at position `first`: each sees the prefix and itself. Behind prefixes of
        several lengths, `positions` (B, T) and what is added to the attention, `mask` (B, 1, T, past + T), are given.
        """
        given = ids if embeddings is None else embeddings
        assert given is not None
        inputs: dict[str, Any] = {"input_ids": ids} if embeddings is None else {"inputs_embeds": embeddings}
        if positions is not None:
            inputs["position_ids"], inputs["attention_mask"] = positions, mask
        elif rivals:
            inputs["position_ids"] = torch.full((1, given.shape[1]), first, device=given.device)
            inputs["attention_mask"] = itself(given.shape[1], first, given.device).expand(len(given), 1, -1, -1)
        else:
            inputs["position_ids"] = torch.arange(first, first + given.shape[1], device=given.device)[None]
        cache = KeepsNothing() if past is None else past
        z: Tensor = self.base(**inputs, past_key_values=cache, use_cache=past is not None).last_hidden_state
        return z


def itself(count: int, prefix: int, device: torch.device) -> Tensor:
    """What is added to the attention of rivals (count, prefix + count): nothing for the prefix and for itself."""
    blind = torch.full((count, count), torch.finfo(torch.float32).min, device=device).fill_diagonal_(0.0)
    return torch.cat([torch.zeros(count, prefix, device=device), blind], dim=1)


class Head(nn.Module):
    """The server's part: z (B, T, d) → logits (B, T, V).

    Args:
        base: the server's blocks.
        lm_head: the last matrix.
        sizes: what the states of a first position and of the others are multiplied with before the first block, where
            a release took their size away; None: they come as they are.
    """

    def __init__(self, base: nn.Module, lm_head: nn.Module, sizes: Sequence[float] | None = None) -> None:
        super().__init__()
        self.base, self.lm_head, self.sizes = base, lm_head, sizes

    def hidden(self, z: Tensor) -> Tensor:
        """What the last matrix, from hidden states to logits, is applied to, (B, T, d)."""
        cache = KeepsNothing()
        last: Tensor = self.base(inputs_embeds=self.sized(z), past_key_values=cache, use_cache=False).last_hidden_state
        return last

    def sized(self, z: Tensor) -> Tensor:
        """States (B, T, d) with the size that the blocks know; a position's place is no secret."""
        if self.sizes is None:
            return z
        first, others = self.sizes
        return torch.cat([z[:, :1] * first, z[:, 1:] * others], dim=1)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(self.hidden(z))
        return logits


class SplitLanguageModel(nn.Module):
    """`forward(ids) = head(encoder(ids))`, with the weights of `model`, which both parts share with it.

    Args:
        model: a causal LM of transformers, such as GPT-2 or Llama.
        cut: the number of blocks that the client runs, `last` (all, before the final norm) or `final` (after it).
        sizes: of states, that the server gives back to them (`Head`).
    """

    def __init__(self, model: PreTrainedModel, cut: int | str = "last", sizes: Sequence[float] | None = None) -> None:
        super().__init__()
        base = model.base_model
        blocks = next((name for name in BLOCKS if isinstance(getattr(base, name, None), nn.ModuleList)), None)
        norm = next((name for name in NORMS if hasattr(base, name)), None)
        if blocks is None or norm is None or model.get_output_embeddings() is None:
            raise UserError(f"{type(model).__name__} is no causal LM that can be cut: it has no list of blocks")
        count = len(getattr(base, blocks))
        self.depth = count
        self.cut, self.cut_layer = self.blocks_before(cut, count), str(cut)
        client = shallow(base, {blocks: getattr(base, blocks)[: self.cut]})
        server = shallow(base, {blocks: getattr(base, blocks)[self.cut :]})
        if hasattr(base, "wpe"):  # GPT-2 adds positions to whatever comes in
            server._modules["wpe"] = NoPositions()
        if hasattr(base, "drop"):
            server._modules["drop"] = nn.Identity()
        (server if cut == "final" else client)._modules[norm] = nn.Identity()
        self.encoder, self.head = Encoder(client), Head(server, model.get_output_embeddings(), sizes)
        embeddings = model.get_input_embeddings()
        assert isinstance(embeddings, nn.Embedding)
        self.embeddings = embeddings
        self.width: int = self.embeddings.embedding_dim
        if (hidden := getattr(model.config, "hidden_size", self.width)) != self.width:
            raise UserError(
                f"{type(model).__name__} embeds tokens in {self.width} numbers and has hidden states of {hidden}: "
                f"what is recovered at the cut does not fit the embeddings"
            )
        self.state_width = self.width  # of what leaves the client; behind a bottleneck it is smaller
        self.vocabulary: int = self.embeddings.num_embeddings
        self.context = int(getattr(model.config, "max_position_embeddings", 0)) or 2**31

    @staticmethod
    def blocks_before(cut: int | str, count: int) -> int:
        """How many blocks the client runs."""
        if cut in ("last", "final"):
            return count
        if not str(cut).isdecimal() or int(cut) > count:
            raise UserError(
                f"the cut of a language model of {count} blocks must be 0 to {count}, last or final; got {cut}"
            )
        return int(cut)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(ids))
        return logits


@torch.no_grad()
def state_sizes(model: SplitLanguageModel, ids: Tensor) -> list[float]:
    """The root mean square of the states of first positions and of the others, for token sequences (B, T).

    In models of Llama's kind a first position is many times larger: it must not set the size of the others.
    """
    squared = model.encoder(ids.to(model.embeddings.weight.device)).double().square().mean(dim=2)  # (B, T)
    return [part.mean().sqrt().item() for part in (squared[:, :1], squared[:, 1:])]


def language_model(config: dict[str, Any], cut: int | str, sizes: Sequence[float] | None = None) -> SplitLanguageModel:
    """A split language model with random weights, by the config that transformers writes: how a checkpoint begins.

    A checkpoint is data: only models that transformers itself has are built, and nothing that it names is run.
    """
    kind = str(config.get("model_type")) if isinstance(config, dict) else "unknown"
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise UserError(f"the checkpoint's model is of type {kind}, which is no causal LM that transformers has")
    if sizes is not None and not is_pair_of_sizes(sizes):
        raise UserError(f"the checkpoint's {kind} model has states of no size: it is damaged")
    try:
        described = AutoConfig.for_model(**harmless(config))
        model = AutoModelForCausalLM.from_config(described, trust_remote_code=False)
    except Exception as error:  # each architecture refuses wrong settings in its own way
        raise UserError(f"the checkpoint's {kind} model cannot be built from its config: it is damaged") from error
    return SplitLanguageModel(model, cut, sizes)


def is_pair_of_sizes(sizes: Any) -> bool:
    """Whether these are the sizes of a first position's states and of the others."""
    is_pair = isinstance(sizes, list | tuple) and len(sizes) == 2
    return is_pair and all(isinstance(each, float) and 0 < each < math.inf for each in sizes)


def harmless(config: dict[str, Any]) -> dict[str, Any]:
    """The config, and those inside it, without what names code or the place of code."""
    return {
        name: harmless(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if not str(name).startswith("_") and not str(name).endswith("_implementation") and name not in NAMING_CODE
    }


def shallow(module: nn.Module, replaced: dict[str, nn.Module]) -> nn.Module:
    """A copy that shares every child and every weight with the module, apart from the children that are replaced."""
    copied = module.__new__(type(module))
    copied.__dict__ = module.__dict__.copy()
    copied._modules = {**module._modules, **replaced}
    return copied
