"""Language models for the inverters: random ones test the plumbing, a trained one the difficulty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pydoc_data.topics import topics

import pytest
import torch
import torch.nn.functional as F
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from sweetspot.lightning_modules.defences import Release
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

VOCABULARY, LENGTH = 300, 8


class Rotation(Release):
    """A release that loses nothing and that everyone knows: z turned, and stretched, by a matrix."""

    matrix: Tensor

    def __init__(self, width: int, seed: int = 0, stretch: float = 1.0) -> None:
        super().__init__()
        drawn = torch.randn(width, width, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("matrix", torch.linalg.qr(drawn).Q)
        self.stretch = stretch

    def forward(self, z: Tensor) -> Tensor:
        return self.stretch * z @ self.matrix


@dataclass
class Trained:
    """A small GPT-2 that has learnt something, with text it was trained on and prompts it was not."""

    model: PreTrainedModel
    tokenizer: ByteLevelBPETokenizer
    text: list[list[int]]
    prompts: list[list[int]]

    def cut(self, cut: int | str) -> SplitLanguageModel:
        return SplitLanguageModel(self.model, cut).eval()


@pytest.fixture(scope="session")
def large_vocabulary() -> SplitLanguageModel:
    """A random GPT-2 with so many tokens that no table of all of them is built."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=20_000, n_positions=16, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    model: PreTrainedModel = GPT2LMHeadModel(config).eval()
    return SplitLanguageModel(model, "last")


@pytest.fixture(scope="session")
def trained() -> Trained:
    corpus = "\n".join(topics[name] for name in sorted(topics))[:60_000]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([corpus], vocab_size=VOCABULARY, min_frequency=2, show_progress=False)
    ids = torch.tensor(tokenizer.encode(corpus).ids)
    ids, held_out = ids[:-2000], ids[-2000:]
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        starts = torch.randint(len(ids) - 32, (16,))
        batch = torch.stack([ids[start : start + 32] for start in starts.tolist()])
        optimiser.zero_grad()
        F.cross_entropy(model(batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimiser.step()
    text = ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)[:600].tolist()
    prompts = held_out.view(-1, LENGTH)[::25].tolist()
    return Trained(model.eval(), tokenizer, text, prompts)


@pytest.fixture(params=["gpt2", "llama"])
def random_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel
    if request.param == "gpt2":
        config = GPT2Config(
            vocab_size=200, n_positions=16, n_embd=32, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=0
        )
        model = GPT2LMHeadModel(config)
    else:
        llama = LlamaConfig(
            vocab_size=200, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        model = LlamaForCausalLM(llama)
    model.eval()
    return model


@pytest.fixture
def leaked() -> Callable[..., list[Tensor]]:
    """`leaked(model, prompts)`: the cut layer's states (T, d) of each prompt, computed without any cache."""

    def states(model: SplitLanguageModel, prompts: list[list[int]]) -> list[Tensor]:
        with torch.no_grad():
            return [model.encoder(torch.tensor([prompt]))[0] for prompt in prompts]

    return states
