"""Certificates of a Gaussian release: what no attacker can exceed, whatever it knows and computes.

The client sends h(x) + σ·N(0, I) with fresh noise for every query; the mean of k answers has variance σ²/k. For inputs
drawn from those that are given the figures hold exactly; for the population up to the sampling error of the set, and
where h has more dimensions than a class has inputs, their covariance sees only a part of those directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from scipy.stats import beta
from torch import Tensor

from sweetspot.lightning_modules.defences.releases import Chain, Clip, Gaussian, Noise, Release, TopK

GALLERY = 100  # same-class inputs among which the true one is searched
TRIALS = 20_000  # of the Monte Carlo: an interval of at most ±0.007
PROBES = 8  # of Hutchinson's estimate of a trace
ENTRIES_AT_ONCE = 2**24  # numbers of the galleries that are worked on together: 128 MiB
NO_RADIUS = 1e-6  # in σ: a smaller distance from the centre counts as this, which raises the bound by less than 1e-6
HALVINGS = 64  # of the interval of μ: as many as a float has digits, and some


# ------------------------------------------------------------------ what is released


class GaussianRelease(NamedTuple):
    """What a certificate must know of a release.

    Args:
        sigma: the standard deviation of the noise.
        clip: the largest ℓ2 norm of what the noise is added to; None where nothing limits it.
        before: z behind the bottleneck as the noise is added to it: clipped, scaled to unit root mean square, …
    """

    sigma: float
    clip: float | None
    before: Callable[[Tensor], Tensor]


def gaussian_of(chain: Chain) -> GaussianRelease | None:
    """The Gaussian noise in a chain of releases; None where there is none, or where it comes after other randomness.

    Noise that is added without scaling in between adds up, and whatever follows it (quantise, topk, a second scaling)
    can only lower what leaks. What is drawn *before* the noise and then transformed makes h random: no formula holds.

    Example:
        >>> found = gaussian_of(Chain(Clip(clip=2.0), Gaussian(sigma=0.5, unit="raw")))
        >>> found.sigma, found.clip
        (0.5, 2.0)
        >>> gaussian_of(Chain(Clip(clip=2.0))) is None
        True
    """
    releases = chain.releases()
    first = next((place for place, each in enumerate(releases) if each.random), len(releases))
    added: list[Noise] = []
    for each in releases[first:]:
        if not isinstance(each, Noise) or (added and each.unit != "raw"):
            break
        added.append(each)
    sigmas = [each.sigma for each in added if isinstance(each, Gaussian)]
    if not sigmas:
        return None
    prefix: list[Release] = [*releases[:first], added[0]]  # of noise, `expected` is its scaling alone

    def before(z: Tensor) -> Tensor:
        for each in prefix:
            z = each.expected(z)
        return z

    clip = largest_norm(releases[:first]) if added[0].unit == "raw" else None
    return GaussianRelease(math.hypot(*sigmas), clip, before)


def largest_norm(releases: list[Release]) -> float | None:
    """The largest ℓ2 norm that these releases let through; None where nothing limits it, or something may undo it."""
    norm = None
    for each in releases:
        if isinstance(each, Clip):
            norm = each.clip if norm is None else min(norm, each.clip)
        elif not isinstance(each, TopK):  # leaving entries out never makes an answer longer; rounding may
            norm = None
    return norm


# ------------------------------------------------------------------ nats beyond the label


class Nats(NamedTuple):
    """A bound on I(X; Z̃ given Y) in nats, and the two that it is the smaller of, class by class."""

    nats: float
    logdet: float
    radius: float


def leak_nats(h: Tensor, y: Tensor, sigma: float, queries: int = 1) -> Nats:
    """What a release can tell about an input beyond its class, in nats, averaged over the inputs' classes.

    I(X; Z̃ given Y = c) ≤ min(½ log det(I + S_c/σ²), R_c²/2σ²), S_c the covariance of h in class c and R_c² the mean
    squared distance to its centre.

    Args:
        h: what the noise is added to (N, …).
        y: the classes (N,).
        sigma: the standard deviation of the noise.
        queries: answers that the attacker averages.

    Example:
        >>> h, y = torch.tensor([[-1.0], [1.0], [5.0], [7.0]]), torch.tensor([0, 0, 1, 1])
        >>> found = leak_nats(h, y, sigma=1.0)  # the variance is 1 in both classes
        >>> round(found.nats, 4), round(found.radius, 4)
        (0.3466, 0.5)
    """
    h, variance = h.detach().flatten(1).double(), sigma**2 / queries
    terms = []
    for members in members_by_class(y):
        own = h[members] - h[members].mean(dim=0)
        count, width = own.shape
        scatter = own @ own.T if count <= width else own.T @ own  # the same eigenvalues but for zeros
        eigenvalues = torch.linalg.eigvalsh(scatter / count).clamp_min(0)
        logdet, radius = 0.5 * (eigenvalues / variance).log1p().sum(), 0.5 * own.square().sum() / count / variance
        terms.append(torch.stack([torch.minimum(logdet, radius), logdet, radius]) * (count / len(y)))
    return Nats(*torch.stack(terms).sum(dim=0).tolist())


def worst_input_nats(clip: float, sigma: float, queries: int = 1) -> float:
    """What a release can tell about any input at all, in nats, where ‖h‖ is clipped to C: C²/2σ² a query.

    Example:
        >>> worst_input_nats(clip=1.0, sigma=0.5, queries=10)
        20.0
    """
    return queries * clip**2 / (2 * sigma**2)


def members_by_class(y: Tensor) -> list[Tensor]:
    """The indices of each class's inputs, classes in order."""
    order, counts = y.argsort(stable=True), y.unique(return_counts=True)[1]
    return list(order.split(counts.tolist()))


# ------------------------------------------------------------------ re-identification


def reid_bound(r: Tensor, sigma: float, queries: int = 1) -> Tensor:
    """The largest share of inputs that any attacker tells apart in a gallery of N, for each of many galleries, (…,).

    max over p ≥ 0, Σ p_i = 1, of mean_i Φ(Φ⁻¹(p_i) + a_i), a_i = r_i/σ: p_i is how often input i would be the answer if
    only noise around the centre were sent. At the maximum p_i = Φ(u_i), u_i = −(μ + a_i²/2)/a_i, with one μ for all,
    found by bisection. It is rounded up: of the last interval the end with Σ p_i ≥ 1 counts.

    Args:
        r: the distances (…, N) of each gallery's h(x_i) to one point, such as their mean.
        sigma: the standard deviation of the noise.
        queries: answers that the attacker averages.

    Example:
        >>> reid_bound(torch.tensor([[0.0, 0.0], [9.0, 9.0]]), sigma=1.0)
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    a = (r.detach().double() * (math.sqrt(queries) / sigma)).clamp_min(NO_RADIUS)
    count = a.shape[-1]
    if count == 1:
        return torch.ones_like(a[..., 0])
    blind = torch.special.ndtri(torch.tensor(1 / count, dtype=a.dtype, device=a.device))
    even = -a * (blind + a / 2)  # the μ at which p_i = 1/N
    low, high = even.amin(dim=-1, keepdim=True), even.amax(dim=-1, keepdim=True)  # Σ p_i ≥ 1, Σ p_i ≤ 1
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_much = torch.special.ndtr(-middle / a - a / 2).sum(dim=-1, keepdim=True) >= 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    told: Tensor = torch.special.ndtr(-low / a + a / 2).mean(dim=-1)
    return told


@dataclass(frozen=True)
class Reidentified:
    """How often the true input was found among same-class candidates.

    Args:
        rate: the share of trials in which the nearest candidate was the true one; a tie counts as a guess.
        interval: Clopper–Pearson, 95 %, for these galleries.
        gallery: how many candidates there were; of classes with fewer inputs all of them: then of the smallest class.
        blind: what guessing gives: 1/N, averaged over the trials.
        trials: how many there were.
        hits: each trial's own, where every input was tried once: 1 found, 0 not.
        picked: the candidate that was taken for each input, where every input was tried once (B,).
    """

    rate: float
    interval: tuple[float, float]
    gallery: int
    blind: float
    trials: int
    hits: Tensor | None = None
    picked: Tensor | None = None


def reid_bayes(
    h: Tensor, y: Tensor, sigma: float, gallery: int = GALLERY, trials: int = TRIALS, seed: int = 0, queries: int = 1
) -> Reidentified:
    """How often the best attacker that there can be finds the true input among same-class ones, by Monte Carlo.

    For Gaussian noise the nearest candidate is the most likely one. The galleries follow from the seed, and are those
    of `mean_reid_bound`.

    Args:
        h: what the noise is added to (N, …).
        y: the classes (N,).
        sigma: the standard deviation of the noise.
        gallery: candidates, the true one among them; classes with fewer inputs have as many as they have.
        trials: about how many draws of noise; whole galleries are tried.
        seed: of galleries and noise.
        queries: answers that the attacker averages.
    """
    h, generator = h.detach().flatten(1).double(), torch.Generator(device=h.device).manual_seed(seed + 1)
    groups = galleries_of(y, gallery, trials, seed)
    hits = [nearest_is_true(each, sigma / math.sqrt(queries), generator).sum() for each in batches(h, groups)]
    sizes = [(group.shape[1], group.numel()) for group in groups]
    return summed_up(float(torch.stack(hits).sum()), sizes)


def mean_reid_bound(
    h: Tensor, y: Tensor, sigma: float, gallery: int = GALLERY, trials: int = TRIALS, seed: int = 0, queries: int = 1
) -> float:
    """`reid_bound` averaged over the galleries that `reid_bayes` tries with the same arguments."""
    h, groups = h.detach().flatten(1).double(), galleries_of(y, gallery, trials, seed)
    by_size: dict[int, list[Tensor]] = {}  # galleries of one size are bisected together
    for each in batches(h, groups):
        r = torch.linalg.vector_norm(each - each.mean(dim=1, keepdim=True), dim=-1)  # (G, N)
        by_size.setdefault(each.shape[1], []).append(r)
    told = [size * reid_bound(torch.cat(parts), sigma, queries).sum() for size, parts in by_size.items()]
    return float(torch.stack(told).sum()) / sum(group.numel() for group in groups)


def reid_measured(
    z: Tensor,
    h: Tensor,
    y: Tensor,
    gallery: int = GALLERY,
    seed: int = 0,
    distance: str = "squared",
    inputs: Tensor | None = None,
) -> Reidentified:
    """How often the candidate that is nearest to what was really released is the true one: the gallery attack.

    Args:
        z: what was released (B, …), one draw for each attacked input.
        h: what would be released without noise (N, …), of all candidates.
        y: the candidates' classes (N,).
        gallery: candidates of the input's class, the true one among them, drawn by the seed.
        seed: of the candidates.
        distance: `squared` (the most likely under Gaussian noise) or `l1` (under Laplace noise).
        inputs: which of the candidates the attacked inputs are (B,); None: they are all of them in order.
    """
    norms = {"squared": 2.0, "l1": 1.0}
    if distance not in norms:
        raise ValueError(f"distance must be one of {', '.join(norms)}; got {distance}")
    z, h = z.detach().flatten(1).double(), h.detach().flatten(1).double()
    inputs = torch.arange(len(h), device=h.device) if inputs is None else inputs.to(h.device)
    generator = torch.Generator(device=h.device).manual_seed(seed)
    hits, picked, sizes = h.new_zeros(len(z)), inputs.new_zeros(len(z)), []
    for members in members_by_class(y.to(h.device)):
        rows, places = (inputs[:, None] == members).nonzero(as_tuple=True)  # attacked inputs, and where in the class
        size = min(gallery, len(members))
        keys = torch.rand(len(rows), len(members), generator=generator, device=h.device)
        candidates = keys.scatter(1, places[:, None], 2.0).topk(size).indices  # the true one comes first
        apart = torch.cdist(z[rows], h[members], p=norms[distance]).gather(1, candidates)
        least = apart.amin(dim=1, keepdim=True)
        hits[rows] = (apart[:, :1] == least).double()[:, 0] / (apart == least).sum(dim=1)
        guess = torch.rand(apart.shape, generator=generator, device=h.device) * (apart == least)  # of a tie any one
        picked[rows] = members[candidates.gather(1, guess.argmax(dim=1, keepdim=True))[:, 0]]
        sizes += [(size, len(rows))] if len(rows) else []
    return replace(summed_up(float(hits.sum()), sizes), hits=hits, picked=picked)


def galleries_of(y: Tensor, gallery: int, trials: int, seed: int) -> list[Tensor]:
    """For each class some random galleries of its inputs, (G, N) indices; all together about `trials` indices."""
    generator = torch.Generator(device=y.device).manual_seed(seed)
    groups = []
    for members in members_by_class(y):
        size = min(gallery, len(members))
        count = max(1, round(trials * len(members) / len(y) / size))
        keys = torch.rand(count, len(members), generator=generator, device=y.device)
        groups.append(members[keys.topk(size).indices])
    return groups


def batches(h: Tensor, groups: list[Tensor]) -> Iterator[Tensor]:
    """The galleries' representations (G, N, d), as many at once as memory has room for."""
    for group in groups:
        for part in group.to(h.device).split(max(1, ENTRIES_AT_ONCE // (group.shape[1] * h.shape[1]))):
            yield h[part]


def nearest_is_true(h: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """For galleries h (G, N, d) whether each input plus noise is nearest to itself, (G, N) of bool."""
    h = h - h.mean(dim=1, keepdim=True)
    if h.shape[2] > h.shape[1]:  # only the N directions that the gallery spans matter: the same distances in N numbers
        values, vectors = torch.linalg.eigh(h @ h.mT)
        h = vectors * values.clamp_min(0).sqrt()[:, None, :]
    noise = torch.randn(h.shape, generator=generator, device=h.device, dtype=h.dtype)
    nearness = (h + sigma * noise) @ h.mT - 0.5 * h.square().sum(dim=2)[:, None, :]  # −½‖z − h_j‖² + ½‖z‖²
    return nearness.argmax(dim=2) == torch.arange(h.shape[1], device=h.device)


def summed_up(hits: float, sizes: list[tuple[int, int]]) -> Reidentified:
    """The rate with its interval, from (candidates, trials) of each class."""
    trials = sum(count for _, count in sizes)
    blind = sum(count / size for size, count in sizes) / trials
    return Reidentified(hits / trials, clopper_pearson(hits, trials), min(sizes)[0], blind, trials)


def clopper_pearson(hits: float, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate of which `hits` in `trials` were seen.

    Where trials have unequal rates, as inputs do, it is wider than it need be.

    Example:
        >>> [round(each, 4) for each in clopper_pearson(0, 10)], [round(each, 4) for each in clopper_pearson(5, 10)]
        ([0.0, 0.3085], [0.1871, 0.8129])
    """
    tail = (1 - level) / 2
    low = 0.0 if hits <= 0 else float(beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits >= trials else float(beta.ppf(1 - tail, hits + 1, trials - hits))
    return low, high


# ------------------------------------------------------------------ a diagnostic


def unbiased_mse(
    encoder: Callable[[Tensor], Tensor], x: Tensor, sigma: float, probes: int = PROBES, seed: int = 0, queries: int = 1
) -> float:
    """1/dFIL = d·σ²/Tr(JᵀJ), averaged over inputs x (B, …), d entries each and J the Jacobian of h there.

    A diagnostic: it says what mean squared error an *unbiased* attacker must make. Every attacker with a prior is
    biased, and may do far better. Infinite where an input does not move h at all.

    Args:
        encoder: h, each input by itself (a network in evaluation mode); all that happens before the noise.
        x: some inputs.
        sigma: the standard deviation of the noise.
        probes: random directions of Hutchinson's estimate of the trace.
        seed: of the directions.
        queries: answers that the attacker averages.
    """
    generator = torch.Generator(device=x.device).manual_seed(seed)
    try:
        with torch.no_grad():
            trace = forward_trace(encoder, x, probes, generator)
    except RuntimeError:  # a layer without forward mode; what else is wrong shows in reverse mode, too
        trace = reverse_trace(encoder, x, probes, generator)
    return float((x[0].numel() * sigma**2 / queries / trace.double()).mean())


def forward_trace(encoder: Callable[[Tensor], Tensor], x: Tensor, probes: int, generator: torch.Generator) -> Tensor:
    """An estimate of Tr(JᵀJ) at each input, (B,): the mean of ‖Jv‖² over random signs v."""
    moved = [torch.func.jvp(encoder, (x,), (signs(x, generator),))[1] for _ in range(probes)]
    return torch.stack([each.flatten(1).square().sum(dim=1) for each in moved]).mean(dim=0)


def reverse_trace(encoder: Callable[[Tensor], Tensor], x: Tensor, probes: int, generator: torch.Generator) -> Tensor:
    """The same as the mean of ‖Jᵀv‖², for encoders without forward mode."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        h = encoder(x)
        moved = [torch.autograd.grad(h, x, signs(h, generator), retain_graph=True)[0] for _ in range(probes)]
    return torch.stack([each.flatten(1).square().sum(dim=1) for each in moved]).mean(dim=0)


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """Random signs ±1, shaped as a tensor."""
    drawn = torch.randint(0, 2, like.shape, generator=generator, device=like.device)
    return (2 * drawn - 1).to(like.dtype)


# ------------------------------------------------------------------ all of them


def certificate(
    h: Tensor,
    y: Tensor,
    sigma: float | None,
    clip: float | None = None,
    encoder: Callable[[Tensor], Tensor] | None = None,
    x: Tensor | None = None,
    queries: int = 1,
    seed: int = 0,
    gallery: int = GALLERY,
    trials: int = TRIALS,
) -> dict[str, Any] | None:
    """All certificates of a Gaussian release, as results.json keeps them; None without Gaussian noise.

    Args:
        h: what the noise is added to (N, …), of test inputs: squeezed, clipped and scaled, `gaussian_of(…).before`.
        y: their classes (N,).
        sigma: the standard deviation of the noise; None where there is none.
        clip: the largest norm that h can have; None where nothing limits it.
        encoder: x → h, for the diagnostic.
        x: some inputs, for the diagnostic.
        queries: answers that the attacker averages.
        seed: of galleries, noise and probes.
        gallery: candidates for re-identification.
        trials: of the Monte Carlo.
    """
    if sigma is None:
        return None
    nats = leak_nats(h, y, sigma, queries)
    bound = mean_reid_bound(h, y, sigma, gallery, trials, seed, queries)
    bayes = reid_bayes(h, y, sigma, gallery, trials, seed, queries)
    mse = unbiased_mse(encoder, x, sigma, seed=seed, queries=queries) if encoder and x is not None else math.inf
    return {
        "nats": nats.nats,
        "nats_logdet": nats.logdet,
        "nats_radius": nats.radius,
        "reid_bound": bound,
        "reid_bayes": bayes.rate,
        "reid_interval": list(bayes.interval),
        "gallery": bayes.gallery,
        "blind": bayes.blind,
        "unbiased_mse": mse if math.isfinite(mse) else None,
        "queries": queries,
        "worst_input_nats": None if clip is None else worst_input_nats(clip, sigma, queries),
        "holds": bayes.interval[0] <= bound,
    }
