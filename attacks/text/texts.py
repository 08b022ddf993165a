"""Texts that are recovered to different points, with guesses of all that follows: one forward pass verifies many."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from sweetspot.attacks.text.prefix import SIDE_BY_SIDE, Borrowed, Prefix
from sweetspot.attacks.text.verification import allowed_loss
from sweetspot.lightning_modules.networks.language import SplitLanguageModel

AHEAD = 32  # tokens guessed ahead at first: most texts of a table are shorter
LEAST_AHEAD = 4  # where guesses fail, what lies behind the first wrong one is fed in vain


class RaggedPrefix(Prefix):
    """Prefixes of several lengths: a row of the keys and values holds more columns than its prompt has committed.

    Args:
        model: the split language model whose cut layer leaked.
        layers: keys and values of each block before the cut, (B, heads, T, width) both.
        rows: which of them these prompts are (n,).
        lengths: how many tokens of each are committed (n,).
    """

    def __init__(
        self, model: SplitLanguageModel, layers: list[tuple[Tensor, Tensor]], rows: Tensor, lengths: Tensor
    ) -> None:
        super().__init__(model, len(rows))
        self.held, self.places, self.ends = layers, rows, lengths
        self.length = int(lengths.max())
        self.asked: Tensor | None = None  # the prompts that were asked for last (None: all), and where they stand
        self.standing = self.looked_up(None)

    @property
    def lengths(self) -> Tensor:
        """How many tokens of each prompt are committed (n,)."""
        return self.ends

    def states_of(self, ids: Tensor, rows: Tensor | None = None) -> Tensor:
        """What the next position's state would be with these tokens, (N,) → (N, d)."""
        rows = torch.arange(self.prompts, device=ids.device) if rows is None else rows
        return self.states_of_rivals(ids[:, None], rows)[:, 0]

    @torch.no_grad()
    def states_of_rivals(self, ids: Tensor, rows: Tensor) -> Tensor:
        """The same for several tokens of each prompt, (n, K) and the prompts' places (n,) → (n, K, d)."""
        count, width = ids.shape
        size = min(width, SIDE_BY_SIDE)
        rivals = F.pad(ids, (0, -width % size)).view(-1, size)  # (n · groups, size)
        groups = len(rivals) // count
        z = self.fed(rivals, None, rows.repeat_interleave(groups), torch.eye(size, device=ids.device))
        return z.reshape(count, groups * size, -1)[:, :width]

    def states_of_embeddings(self, embeddings: Tensor, rows: Tensor | None = None) -> Tensor:
        """The same for vectors in place of tokens, (N, d) → (N, d), differentiable in them."""
        return self.fed(None, embeddings[:, None], rows, torch.ones(1, 1, device=embeddings.device))[:, 0]

    def fed(self, ids: Tensor | None, embeddings: Tensor | None, rows: Tensor | None, seen: Tensor) -> Tensor:
        """The states of what stands side by side at the next position; `seen` (K, K) says who sees whom."""
        if rows is not self.asked:  # a descent asks for the same prompts at every step, and only the first one waits
            self.asked, self.standing = rows, self.looked_up(rows)
        ends, columns, chosen = self.standing
        positions = ends[:, None].expand(-1, len(seen))
        past = None if columns == 0 else borrowed(self.held, chosen, columns)
        z: Tensor = self.model.encoder(
            ids=ids, embeddings=embeddings, past=past, positions=positions, mask=attention(ends, columns, seen)
        )
        return z

    def looked_up(self, rows: Tensor | None) -> tuple[Tensor, int, Tensor | None]:
        """Where the prefixes of some prompts end (n,), the last of it, and `unless_in_order` their rows."""
        ends, places = (self.ends, self.places) if rows is None else (self.ends[rows], self.places[rows])
        return ends, int(ends.max()), unless_in_order(self.held, places)


class Texts:
    """The texts of B prompts, with their keys and values: as far as they are known, and guesses of what follows.

    Args:
        model: the split language model whose cut layer leaked.
        guesses: the token proposed at each position (B, T).
        states: the leaked states (B, T, d).
        lengths: how many positions each prompt has (B,).
        tolerance: ‖F − h‖ / ‖h‖ up to which a token counts as verified.
        at_once: the most tokens in one forward pass.
    """

    def __init__(
        self,
        model: SplitLanguageModel,
        guesses: Tensor,
        states: Tensor,
        lengths: Tensor,
        tolerance: float,
        at_once: int,
    ) -> None:
        self.model, self.tokens, self.states, self.lengths = model, guesses.clone(), states, lengths
        self.at_once = at_once
        self.limit = allowed_loss(states.flatten(0, 1), tolerance).view(guesses.shape)  # (B, T)
        self.losses = torch.full_like(self.limit, torch.inf)  # of the token that is proposed or committed
        self.known = torch.zeros_like(lengths)  # tokens of each text that are committed,
        self.cached = torch.zeros_like(lengths)  # and those of them whose keys and values are held
        self.ahead = torch.full_like(lengths, AHEAD)
        self.refused = torch.zeros_like(lengths, dtype=torch.bool)  # whether the guess after them is known to be wrong
        self.layers: list[tuple[Tensor, Tensor]] = []

    @property
    def open(self) -> Tensor:
        """The prompts that are not recovered to their ends (n,)."""
        return (self.known < self.lengths).nonzero()[:, 0]

    @property
    def stuck(self) -> Tensor:
        """Those of them whose next guess is wrong (n,)."""
        return ((self.known < self.lengths) & self.refused).nonzero()[:, 0]

    def advance(self, rows: Tensor) -> None:
        """Feed what is proposed for some prompts (n,) forward, and commit each up to its first wrong token."""
        width = int((self.window(rows)).max())
        for part in rows.split(max(self.at_once // width, 1)):
            self.feed(part)

    def window(self, rows: Tensor) -> Tensor:
        """How many tokens of each prompt are fed (n,): those without keys and values, and so many guesses."""
        return torch.minimum(self.known[rows] + self.ahead[rows], self.lengths[rows]) - self.cached[rows]

    def feed(self, rows: Tensor) -> None:
        """The same for as many prompts as fit."""
        window, first = self.window(rows), self.cached[rows]
        width = int(window.max())
        step = torch.arange(width, device=rows.device)
        positions = (first[:, None] + step).clamp_max(self.tokens.shape[1] - 1)  # (n, W)
        ids, inside = self.tokens[rows[:, None], positions], step < window[:, None]
        z, latest = self.encoded(ids, positions, rows)
        losses = (z - self.states[rows[:, None], positions]).square().mean(dim=2)
        self.keep(rows, positions, inside, latest)
        self.losses[rows[:, None].expand_as(positions)[inside], positions[inside]] = losses[inside]
        right = (losses <= self.limit[rows[:, None], positions]) & inside
        right |= positions < self.known[rows, None]  # committed already, whether verified or not
        run = right.int().cumprod(dim=1).sum(dim=1)  # up to the first wrong one
        fresh = first + run - self.known[rows]
        self.refused[rows] = run < window
        self.ahead[rows] = torch.where(run < window, (2 * fresh).clamp_min(LEAST_AHEAD), 2 * self.ahead[rows])
        self.known[rows] = self.cached[rows] = first + run

    @torch.no_grad()
    def encoded(self, ids: Tensor, positions: Tensor, rows: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The states (n, W, d) of tokens (n, W) behind what is held of some prompts, with their keys and values."""
        ends = self.cached[rows]
        columns = int(ends.max())
        if columns == 0:
            cache = DynamicCache()
            z = self.model.encoder(ids=ids, past=cache)
            held = [layer for layer in cache.layers if isinstance(layer, DynamicLayer)]
            return z, [
                (layer.keys, layer.values) for layer in held if layer.keys is not None and layer.values is not None
            ]
        cache = borrowed(self.layers, unless_in_order(self.layers, rows), columns)
        seen = torch.ones(ids.shape[1], ids.shape[1], device=ids.device).tril()
        z = self.model.encoder(ids=ids, past=cache, positions=positions, mask=attention(ends, columns, seen))
        return z, [layer.latest for layer in cache.layers if isinstance(layer, Borrowed) and layer.latest is not None]

    def keep(self, rows: Tensor, positions: Tensor, inside: Tensor, latest: list[tuple[Tensor, Tensor]]) -> None:
        """Hold the keys and values of what was fed; a guess that is wrong is written over when it is replaced."""
        if not self.layers:
            shape = (len(self.tokens), latest[0][0].shape[1], self.tokens.shape[1]) if latest else ()
            self.layers = [tuple(each.new_zeros(*shape, each.shape[3]) for each in pair) for pair in latest]  # type: ignore[misc]
        row, column = rows[:, None].expand_as(positions)[inside], positions[inside]
        for held, new in zip(self.layers, latest, strict=True):
            for whole, part in zip(held, new, strict=True):
                whole[row, :, column] = part.transpose(1, 2)[inside]

    def behind(self, rows: Tensor) -> RaggedPrefix:
        """What is committed of some prompts (n,), for whoever tries tokens behind it."""
        return RaggedPrefix(self.model, self.layers, rows, self.known[rows])

    def commit(self, rows: Tensor, tokens: Tensor, losses: Tensor) -> None:
        """Put a token where each of some prompts stands; its keys and values come with the next pass."""
        where = self.known[rows]
        self.tokens[rows, where], self.losses[rows, where] = tokens, losses
        self.known[rows] += 1


def borrowed(layers: list[tuple[Tensor, Tensor]], rows: Tensor | None, columns: int) -> DynamicCache:
    """The first columns of what is held of some prompts, or of all, left as it is by whoever reads it."""
    cache = DynamicCache()
    cache.layers = [Borrowed(keys[:, :, :columns], values[:, :, :columns], rows) for keys, values in layers]
    return cache


def unless_in_order(layers: list[tuple[Tensor, Tensor]], rows: Tensor) -> Tensor | None:
    """The rows, or None where they are all that is held, in order: then nothing is copied."""
    is_all = len(layers) > 0 and len(rows) == len(layers[0][0]) and bool((rows.diff() == 1).all())
    return None if is_all else rows


def attention(ends: Tensor, columns: int, seen: Tensor) -> Tensor:
    """What is added to the attention of K tokens behind prefixes that end at `ends` (n,), (n, 1, K, columns + K).

    Nothing for the own prefix and for those that `seen` (K, K) has a 1 for.
    """
    size = len(seen)
    prefix = torch.arange(columns, device=ends.device) < ends[:, None]  # (n, columns)
    may = torch.cat([prefix[:, None].expand(-1, size, -1), seen.bool().expand(len(ends), -1, -1)], dim=2)
    return torch.zeros(may.shape, device=ends.device).masked_fill_(~may, torch.finfo(torch.float32).min)[:, None]
