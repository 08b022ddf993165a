"""TextDataModule: a corpus as blocks of tokens, in which every token is to be predicted from those before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch import Tensor

from sweetspot.datamodules.tensors import Arrays, TensorBatches, TensorDataModule
from sweetspot.datamodules.text import Corpus
from sweetspot.datamodules.tokens import TextTokenizer, blocks
from sweetspot.errors import UserError


class ShuffledBatches:
    """The batches of indices of one epoch, a pure function of (seed, epoch), each device's own part of them."""

    def __init__(self, count: int, batch_size: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        self.count, self.batch_size, self.seed, self.rank, self.world_size = count, batch_size, seed, rank, world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return max(1, self.count // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.count, generator=generator)
        for number in range(len(self)):
            batch = order[number * self.batch_size :][: self.batch_size]
            size = -(-len(batch) // self.world_size)
            places = torch.arange(self.rank * size, (self.rank + 1) * size) % len(batch)
            yield batch[places]


class TextDataModule(TensorDataModule):
    """Training, validation and test blocks of one corpus: x (N, T) and the tokens that follow, y (N, T).

    Args:
        corpus: the documents, split.
        tokenizer: the model's own.
        length: T, tokens in a block.
        batch_size: blocks in one optimiser step, over all devices together.
        seed: the run's seed: it orders the training batches.
        limit_train: use only so many training blocks (0: all).
        limit_test: use only so many test blocks (0: all).
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: TextTokenizer,
        length: int = 64,
        batch_size: int = 32,
        seed: int = 0,
        limit_train: int = 0,
        limit_test: int = 0,
    ) -> None:
        lightning.LightningDataModule.__init__(self)
        self.corpus, self.tokenizer, self.batch_size, self.seed = corpus, tokenizer, batch_size, seed
        train, validation, test = (blocks(documents, tokenizer, length) for documents in corpus.splits)
        train, test = train[: limit_train or None], test[: limit_test or None]
        self.train, self.validation, self.test = (
            (each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in (train, validation, test)
        )
        self.arrays = Arrays(corpus.name, corpus.source, *self.train, *self.test, tokenizer.size, self.validation)
        self.arrays.identity = corpus.identity
        if batch_size > len(train):
            raise UserError(f"--batch-size must be at most the {len(train)} training blocks; got {batch_size}")

    def pixels(self) -> None:
        """Tokens have none."""
        return

    def train_dataloader(self) -> TensorBatches:
        rank, world_size = self.place()
        order = ShuffledBatches(len(self.train[1]), self.batch_size, self.seed, rank, world_size)
        return TensorBatches(*self.train, order)

    def record(self) -> dict[str, Any]:
        """What `results.json` says of the text; counts are blocks."""
        return {**super().record(), "documents": self.corpus.record(), "tokenizer": self.tokenizer.name}
