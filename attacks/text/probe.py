"""What an attacker prepares once per model and cut: a linear probe from states to tokens, and a table of first states.

probe = cached_probe(model, sequences, folder)
scores = probe(states, vocabulary)              # (N, d) → (N, V)
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.attacks.text.released import release_digest
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.errors import UserError
from sweetspot.files import DamagedFileError, read_tensors, save_tensors
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.progress import steps_shown

SCALE = 40.0  # of the cosine: the weight that added best to the prior's log-probability
EPOCHS, LR, BATCH = 3, 3e-3, 128  # the rate is the peak of one cycle; 8 epochs of 256 took 2.4 times as long
# tokens that a state's own is told apart from, beside those of its batch, drawn anew for each: a softmax over a whole
# vocabulary of 49,152 costs many times as much (on small vocabularies the two rank alike; on large ones not compared)
SAMPLED = 1024
RANDOM_SHARE = 0.25  # of the training tokens: random ones, since a corpus never shows most of the vocabulary
RIDGE = 1e-2  # of the closed form from which the softmax starts, to inputs of variance 1
OPENINGS, OPENING_EPOCHS = 4096, 4  # tokens that a probe of first positions learns from, and how often
SPREAD_TOKENS, SPREAD_SEQUENCES = 256, 32  # over which the spread of the states' coordinates is measured
ROWS = 1024  # positions in one forward pass


class Probe(nn.Module):
    """Scaled cosine between a linear map of the states and the centred embeddings, (N, d) → (N, V)."""

    mean: Tensor
    spread: Tensor

    def __init__(self, states: int, embeddings: int) -> None:
        super().__init__()
        self.linear = nn.Linear(states, embeddings)
        self.register_buffer("mean", torch.zeros(states))
        self.register_buffer("spread", torch.ones(states))

    def forward(self, states: Tensor, directions: Tensor) -> Tensor:
        """The tokens' scores, with `directions` the unit embeddings (V, d) of `directions_of`."""
        guess = F.normalize(self.linear((states - self.mean) / self.spread), dim=1)
        return SCALE * guess @ directions.T


def directions_of(vocabulary: Vocabulary) -> Tensor:
    """The centred embeddings, each of length 1, (V, d): what all tokens share tells none of them apart."""
    return F.normalize(vocabulary.embeddings - vocabulary.mean, dim=1)


def with_random(sequences: Sequence[Sequence[int]], vocabulary: int, seed: int) -> list[Tensor]:
    """The sequences, and some more of random tokens, of the same lengths."""
    generator = torch.Generator().manual_seed(seed)
    own = [torch.as_tensor(each, dtype=torch.long) for each in sequences if len(each) > 1]
    if not own:
        raise UserError("the probe needs token sequences of at least 2 tokens to learn from; there are none")
    count = round(len(own) * RANDOM_SHARE / (1 - RANDOM_SHARE))
    picked = torch.randint(len(own), (count,), generator=generator).tolist()
    return own + [torch.randint(vocabulary, (len(own[i]),), generator=generator) for i in picked]


@torch.no_grad()
def states_and_tokens(model: SplitLanguageModel, sequences: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The cut layer's states (N, d) and their tokens (N,), without first positions: they are the table's business."""
    device, states, tokens = model.embeddings.weight.device, [], []
    by_length: dict[int, list[Tensor]] = {}
    for each in sequences:  # sequences of one length go together, so nothing is padded
        each = each[: model.context]
        by_length.setdefault(len(each), []).append(each)
    for length, group in by_length.items():
        for ids in torch.stack(group).to(device).split(max(ROWS // length, 1)):
            states.append(model.encoder(ids)[:, 1:].flatten(0, 1))
            tokens.append(ids[:, 1:].flatten())
    return torch.cat(states), torch.cat(tokens)


def train_probe(
    model: SplitLanguageModel, sequences: Sequence[Sequence[int]], seed: int = 0, noise: float = 0.0
) -> Probe:
    """A probe trained with a softmax over sampled tokens, on the attacker's own text and on random tokens.

    Args:
        model: whose states it reads, as they are released.
        sequences: the attacker's own text.
        seed: of the random tokens, the order and the noise.
        noise: the standard deviation of what is added to each entry of a state, drawn anew whenever one is seen.
    """
    states, tokens = states_and_tokens(model.eval(), with_random(sequences, model.vocabulary, seed))
    return fitted_probe(model, states, tokens, EPOCHS, seed, noise)


def train_opening_probe(model: SplitLanguageModel, seed: int = 0, noise: float = 0.0) -> Probe:
    """A probe of first positions, trained on random tokens: their states depend on that token alone.

    Args:
        model: whose states it reads, as they are released.
        seed: of the tokens, the order and the noise.
        noise: the standard deviation of what is added to each entry of a state, drawn anew whenever one is seen.
    """
    tokens = torch.randperm(model.vocabulary, generator=torch.Generator().manual_seed(seed))[:OPENINGS]
    tokens = tokens.to(model.embeddings.weight.device)
    return fitted_probe(model, first_states(model, tokens), tokens, OPENING_EPOCHS, seed, noise)


def fitted_probe(
    model: SplitLanguageModel, states: Tensor, tokens: Tensor, epochs: int, seed: int, noise: float = 0.0
) -> Probe:
    """A probe that tells the tokens (N,) of these states (N, d)."""
    directions = directions_of(Vocabulary(model.embeddings.weight))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = Probe(model.state_width, model.width).to(states)
    probe.mean, probe.spread = states.mean(dim=0), (states.var(dim=0) + noise**2).sqrt() + 1e-6
    start_at_ridge(probe, states, directions[tokens], noise)
    optimiser = torch.optim.Adam(probe.parameters(), lr=LR)
    steps = epochs * -(-len(tokens) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=LR, total_steps=steps)
    generator, step, known = torch.Generator().manual_seed(seed), 0, tokens.cpu()
    with steps_shown("probe", steps) as done, torch.enable_grad():
        for _ in range(epochs):
            for batch in torch.randperm(len(tokens), generator=generator).split(BATCH):
                optimiser.zero_grad(set_to_none=True)
                seen = with_noise(states[batch.to(states.device, non_blocking=True)], noise, generator)
                sampled_loss(probe, seen, known[batch], directions, generator).backward()
                optimiser.step()
                schedule.step()
                done(step := step + 1)
    return probe.eval().requires_grad_(False)


@torch.no_grad()
def start_at_ridge(probe: Probe, states: Tensor, wanted: Tensor, noise: float) -> None:
    """Set the linear map to the ridge regression from states (N, d) to directions (N, e): few samples end near it.

    Noise of known size adds to the diagonal what it adds to the inputs' variance on average.
    """
    inputs = (states - probe.mean) / probe.spread
    square = inputs.T @ inputs / len(inputs)
    square.diagonal().add_(RIDGE + (noise / probe.spread) ** 2)
    probe.linear.weight.copy_(torch.linalg.solve(square, inputs.T @ (wanted - wanted.mean(dim=0)) / len(inputs)).T)
    probe.linear.bias.copy_(wanted.mean(dim=0))  # the inputs' mean is 0


def sampled_loss(
    probe: Probe, states: Tensor, tokens: Tensor, directions: Tensor, generator: torch.Generator
) -> Tensor:
    """The cross-entropy of the tokens (n,) among themselves and some more; among all, where those are not many more.

    The tokens are on the CPU: which of them are different is known there, and no step waits for it.
    """
    if len(directions) <= 2 * SAMPLED:
        return F.cross_entropy(probe(states, directions), tokens.to(states.device, non_blocking=True))
    drawn = torch.randint(len(directions), (SAMPLED,), generator=generator)
    classes, where = torch.cat([tokens, drawn]).unique(return_inverse=True)
    among, wanted = (each.to(states.device, non_blocking=True) for each in (classes, where[: len(tokens)]))
    return F.cross_entropy(probe(states, directions[among]), wanted)


def state_spreads(model: SplitLanguageModel, sequences: Sequence[Sequence[int]], seed: int = 0) -> Tensor:
    """The standard deviation of each coordinate of the states (2, d): at first positions, and at all others.

    Over some random tokens and over the first of the attacker's own token sequences. A coordinate that hardly moves
    gets a thousandth of the mean spread, so that its rounding is not blown up.
    """
    own = [torch.as_tensor(each, dtype=torch.long) for each in sequences[:SPREAD_SEQUENCES] if len(each) > 1]
    if not own:
        raise UserError("the scaled loss needs token sequences of at least 2 tokens to measure spreads on; got none")
    drawn = torch.randperm(model.vocabulary, generator=torch.Generator().manual_seed(seed))[:SPREAD_TOKENS]
    first = first_states(model, drawn.to(model.embeddings.weight.device))
    spreads = torch.stack([each.std(dim=0) for each in (first, states_and_tokens(model.eval(), own)[0])])
    return spreads + 1e-3 * spreads.mean(dim=1, keepdim=True)


def with_noise(states: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """The states with fresh Gaussian noise of this standard deviation on every entry."""
    if noise <= 0:
        return states
    drawn = torch.randn(states.shape, generator=generator)
    return states + noise * drawn.to(states.device, states.dtype, non_blocking=True)


@torch.no_grad()
def first_states(model: SplitLanguageModel, tokens: Tensor | None = None) -> Tensor:
    """The state of every token at the first position (V, d), or of some (N,): it depends on that token alone."""
    every = torch.arange(model.vocabulary, device=model.embeddings.weight.device) if tokens is None else tokens
    batches = every[:, None].split(ROWS)
    states = []
    with steps_shown("first positions", len(batches)) as done:
        for index, ids in enumerate(batches, 1):
            states.append(model.eval().encoder(ids)[:, 0])
            done(index)
    return torch.cat(states)


def fingerprint(model: SplitLanguageModel, extra: str = "") -> str:
    """A name for these very weights, this cut and this release: another model never reads what this one prepared."""
    digest = hashlib.sha256(f"{model.cut_layer} {extra}".encode() + release_digest(model))
    for name, weight in sorted(model.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def cached(path: Path, make: Callable[[], dict[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
    """The tensors in a file, made and written where it is missing or damaged."""
    if path.is_file():
        with contextlib.suppress(DamagedFileError):  # a cache can always be made again
            held: dict[str, Tensor] = read_tensors(path)
            return {name: tensor.to(device) for name, tensor in held.items()}
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(path, made)
    return made


def probe_path(
    model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path, seed: int = 0, noise: float = 0.0
) -> Path:
    """Where the probe of this model, cut, text, seed and noise is kept."""
    recipe: tuple[object, ...] = (
        SCALE,
        EPOCHS,
        LR,
        BATCH,
        (SAMPLED, RIDGE),
        RANDOM_SHARE,
        seed,
        [list(map(int, each)) for each in sequences],
    )
    recipe += (noise,) if noise > 0 else ()
    return folder / f"probe-{fingerprint(model, repr(recipe))}.pt"


def cached_probe(
    model: SplitLanguageModel, sequences: Sequence[Sequence[int]], folder: Path, seed: int = 0, noise: float = 0.0
) -> Probe:
    """The probe of this model, cut, text, seed and noise: from the folder, or trained and put there."""
    path = probe_path(model, sequences, folder, seed, noise)
    return held_probe(model, path, lambda: train_probe(model, sequences, seed, noise))


def cached_opening_probe(model: SplitLanguageModel, folder: Path, seed: int = 0, noise: float = 0.0) -> Probe:
    """The probe of first positions of this model, cut and noise: from the folder, or trained and put there."""
    recipe: tuple[object, ...] = ("opening", SCALE, OPENING_EPOCHS, OPENINGS, LR, BATCH, SAMPLED, RIDGE, seed)
    recipe += (noise,) if noise > 0 else ()
    path = folder / f"opening-{fingerprint(model, repr(recipe))}.pt"
    return held_probe(model, path, lambda: train_opening_probe(model, seed, noise))


def held_probe(model: SplitLanguageModel, path: Path, train: Callable[[], Probe]) -> Probe:
    """The probe in a file, trained and put there where it is missing or damaged."""
    weights = cached(path, lambda: train().state_dict(), model.embeddings.weight.device)
    probe = Probe(model.state_width, model.width).to(model.embeddings.weight)
    probe.load_state_dict(weights)
    return probe.eval().requires_grad_(False)


def table_path(model: SplitLanguageModel, folder: Path) -> Path:
    """Where the first-position table of this model and cut is kept."""
    return folder / f"first-{fingerprint(model)}.pt"


def cached_first_states(model: SplitLanguageModel, folder: Path) -> Tensor:
    """The first-position table of this model and cut: from the folder, or built and put there."""
    path = table_path(model, folder)
    return cached(path, lambda: {"states": first_states(model)}, model.embeddings.weight.device)["states"]
