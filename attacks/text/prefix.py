"""The prefix that is already recovered, with its keys and values, so that a step touches one position."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from sweetspot.lightning_modules.networks.language import SplitLanguageModel

SIDE_BY_SIDE = 64  # rivals in a row: their attention grows with the square


class Borrowed(DynamicLayer):
    """Keys and values of a prefix that are read and not added to, row i seeing the prefix of prompt `rows[i]`."""

    def __init__(self, keys: Tensor | None, values: Tensor | None, rows: Tensor | None) -> None:
        super().__init__()
        self.keys, self.values, self.rows, self.is_initialized = keys, values, rows, True
        self.latest: tuple[Tensor, Tensor] | None = None  # keys and values of what was fed behind it last

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        keys, values, self.latest = self.keys, self.values, (key_states, value_states)
        assert keys is not None
        assert values is not None
        if self.rows is not None:
            keys, values = keys[self.rows], values[self.rows]
        return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)


class Prefix:
    """The committed tokens of B prompts, all of one length.

    Args:
        model: the split language model whose cut layer leaked.
        prompts: how many prompts are recovered at once.
    """

    def __init__(self, model: SplitLanguageModel, prompts: int) -> None:
        self.model, self.prompts, self.length = model, prompts, 0
        self.cache = DynamicCache()
        self.states: Tensor | None = None  # of the committed tokens (B, t, d)

    @property
    def lengths(self) -> Tensor:
        """How many tokens of each prompt are committed (B,)."""
        return torch.full((self.prompts,), self.length, device=self.model.embeddings.weight.device)

    @torch.no_grad()
    def commit(self, ids: Tensor) -> Tensor:
        """Append one token to each prompt, (B,) → its states (B, d)."""
        z: Tensor = self.model.encoder(ids=ids[:, None], past=self.cache, first=self.length)
        self.length += 1
        self.states = z if self.states is None else torch.cat([self.states, z], dim=1)
        return z[:, 0]

    @torch.no_grad()
    def states_of(self, ids: Tensor, rows: Tensor | None = None) -> Tensor:
        """What the next position's state would be with these tokens, (N,) → (N, d).

        Args:
            ids: the tokens to try.
            rows: the prompt that each belongs to (N,); None: one each.
        """
        z: Tensor = self.model.encoder(ids=ids[:, None], past=self.borrowed(rows), first=self.length)
        return z[:, 0]

    @torch.no_grad()
    def states_of_rivals(self, ids: Tensor, rows: Tensor) -> Tensor:
        """The same for several tokens of each prompt, (n, K) and the prompts' places (n,), ascending, → (n, K, d).

        The tokens of a prompt lie side by side behind its one prefix, so that nothing is copied for each.
        """
        count, width = ids.shape
        size = min(width, SIDE_BY_SIDE)
        rivals = F.pad(ids, (0, -width % size)).view(-1, size)  # (n · groups, size)
        groups = len(rivals) // count
        place = self.unless_all(rows) if groups == 1 else rows.repeat_interleave(groups)
        z: Tensor = self.model.encoder(ids=rivals, past=self.borrowed(place), first=self.length, rivals=True)
        return z.reshape(count, groups * size, -1)[:, :width]

    def unless_all(self, rows: Tensor) -> Tensor | None:
        """Rows in ascending order, none of them twice, or None where they are all prompts: then nothing is copied."""
        return None if len(rows) == self.prompts else rows

    def states_of_embeddings(self, embeddings: Tensor, rows: Tensor | None = None) -> Tensor:
        """The same for vectors in place of tokens, (N, d) → (N, d), differentiable in them."""
        z: Tensor = self.model.encoder(embeddings=embeddings[:, None], past=self.borrowed(rows), first=self.length)
        return z[:, 0]

    def borrowed(self, rows: Tensor | None) -> Cache | None:
        """The prefix for rows of a batch, left as it is by whoever reads it."""
        if self.length == 0:
            return None
        cache = DynamicCache()
        cache.layers = [Borrowed(layer.keys, layer.values, rows) for layer in self.layers()]
        return cache

    def keep(self, rows: Tensor) -> None:
        """Go on with these prompts only."""
        self.prompts = len(rows)
        self.states = None if self.states is None else self.states[rows]
        for layer in self.layers():
            layer.batch_select_indices(rows)

    def layers(self) -> list[DynamicLayer]:
        """The keys and values of each block before the cut."""
        return [layer for layer in self.cache.layers if isinstance(layer, DynamicLayer)]
