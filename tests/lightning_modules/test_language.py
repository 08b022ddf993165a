"""Split language models: encoder ∘ head is the model, for every cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.cache_utils import DynamicCache

from sweetspot.errors import UserError
from sweetspot.lightning_modules.causal_lm import gpt2_tiny
from sweetspot.lightning_modules.networks.language import SplitLanguageModel, language_model

CUTS = [0, 1, 2, 3, "last", "final"]


def tiny(kind: str) -> PreTrainedModel:
    """Three blocks with random weights, position embeddings and norms included, so that a lost one shows."""
    model: PreTrainedModel
    if kind == "gpt2":
        model = gpt2_tiny(60, layers=3, width=16, heads=2, context=32)
    else:
        sizes: dict[str, Any] = {
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
        }
        model = LlamaForCausalLM(LlamaConfig(vocab_size=60, num_hidden_layers=3, max_position_embeddings=32, **sizes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
    model.eval()
    return model


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_encoder_and_head_are_the_model(kind: str, cut: int | str) -> None:
    model = tiny(kind)
    split = SplitLanguageModel(model, cut)
    ids = torch.randint(60, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = model(ids, output_hidden_states=True)
        z = split.encoder(ids)
        assert torch.allclose(split(ids), whole.logits, atol=1e-5)
        assert torch.equal(split.encoder(embeddings=split.embeddings(ids)), z)
    if cut == "final":
        assert torch.allclose(z, whole.hidden_states[-1], atol=1e-5)
    elif cut in (0, 1, 2):  # transformers gives its last state after the norm only
        assert torch.allclose(z, whole.hidden_states[int(cut)], atol=1e-5)
    assert z.shape == (2, 9, 16)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_state_depends_on_the_tokens_before_it_only(kind: str) -> None:
    split = SplitLanguageModel(tiny(kind), "last")
    ids = torch.randint(60, (1, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(split.encoder(ids)[:, :5], split.encoder(ids[:, :5]), atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_rivals_see_the_prefix_and_themselves(kind: str) -> None:
    split = SplitLanguageModel(tiny(kind), "last").eval()
    prefix, rivals = torch.tensor([[3, 5, 7], [2, 2, 9]]), torch.tensor([[1, 4, 8, 4], [0, 6, 6, 11]])
    cache = DynamicCache()
    with torch.no_grad():
        split.encoder(prefix, past=cache)
        together = split.encoder(rivals, past=cache, first=3, rivals=True)
        for row in range(2):
            for column in range(4):
                alone = split.encoder(torch.cat([prefix[row], rivals[row, column : column + 1]])[None])[0, -1]
                assert torch.allclose(together[row, column], alone, atol=1e-5)


def test_both_parts_train_the_models_own_weights() -> None:
    model = tiny("gpt2")
    split = SplitLanguageModel(model, 1)
    split(torch.arange(6)[None]).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert {id(weight) for weight in split.parameters()} == {id(weight) for weight in model.parameters()}


@pytest.mark.parametrize("cut", [4, -1, "middle"])
def test_a_cut_that_is_none_is_refused(cut: int | str) -> None:
    with pytest.raises(UserError, match=f"must be 0 to 3, last or final; got {cut}"):
        SplitLanguageModel(tiny("gpt2"), cut)


def test_embeddings_that_do_not_fit_the_cut_are_refused() -> None:
    model = tiny("gpt2")
    model.set_input_embeddings(torch.nn.Embedding(60, 8))
    with pytest.raises(UserError, match="embeds tokens in 8 numbers and has hidden states of 16"):
        SplitLanguageModel(model, 1)


def test_a_config_keeps_what_shapes_the_model_and_loses_what_names_code() -> None:
    config = tiny("llama").config.to_dict()
    named = {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}, "_name_or_path": "folder"}
    kernel = {"attn_implementation": "someone/kernel", "quantization_config": {"quant_method": "own"}}
    plain, same = language_model(config, 1), language_model({**config, **named, **kernel}, 1)
    assert plain.depth == same.depth == 3
    shapes = [{name: tuple(weight.shape) for name, weight in each.state_dict().items()} for each in (plain, same)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "vit"}, "of type vit, which is no causal LM"),
        ({"model_type": "own"}, "of type own"),
        ({}, "of type None"),
        (None, "of type unknown"),
        ({"model_type": "gpt2", "n_embd": "wide"}, "cannot be built"),
    ],
)
def test_a_config_of_something_else_is_refused_in_one_line(config: Any, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        language_model(config, 1)
    assert "\n" not in str(caught.value)
