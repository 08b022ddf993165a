"""One sample at a time, from many starts at once: σ'(W·x) of a true sample lies in the column space of ∂L/∂W.

In the B coordinates of the samples' span, V = S·diag(r)·X with S_ji = σ'(w_j·x_i). Every column of S is a combination
of V's columns, whatever the other samples are. So a sample is a zero of

    ‖(I − Q·Qᵀ)·s‖ / ‖s‖,   s = σ'(W·x),   Q an orthonormal basis of V's columns,

with B unknowns and m equations; hundreds of starts cost a few matrix products a step. All columns go without their
means: otherwise x = 0, whose s is constant, would be near the span of many samples. Where σ' is a step (ReLU), s has no
slope; there the combination Q·q itself is looked for, which must be two-valued: a polynomial in q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.diagonalisation import unit
from sweetspot.attacks.gradients.least_squares import System, levenberg_marquardt, linear_least_squares
from sweetspot.attacks.gradients.magnitudes import NORMS
from sweetspot.attacks.gradients.moments import Observed
from sweetspot.attacks.gradients.subspace import block

STEPS = 80
SOLVED = 1e-27  # a cost that is rounding
FOUND = 1e-20  # a cost that only a sample has
SAME = 1e-5  # a column of S this near to the span of others, relative to its norm, is no new sample
RANDOM = 64  # random starts of a round
ROUNDS = 8
UNITS = 512  # hidden units whose outer products are held at once
TRIED_NORMS = NORMS[::6]
OTHER_NORMS = (0.5, 1.0, 2.0, 8.0)


def outer_sums(weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Σ_j weights_jr·first_j·second_jᵀ for each r, (m, R), (m, B), (m, B) → (R, B, B), in chunks of hidden units."""
    size = first.shape[1]
    total = first.new_zeros(weights.shape[1], size * size)
    for c, a, b in zip(weights.split(UNITS), first.split(UNITS), second.split(UNITS), strict=True):
        total.addmm_(c.T, (a[:, :, None] * b[:, None]).flatten(1))
    return total.view(-1, size, size)


def centred(columns: Tensor) -> Tensor:
    """Columns (m, R) without their means."""
    return columns - columns.mean(dim=0)


def missed(columns: Tensor, basis: Tensor) -> Tensor:
    """‖(I − QQᵀ)·s‖² / ‖s‖² of columns s (m, R) for an orthonormal Q (m, B), (R,); good to rounding of 1."""
    inside = (basis.T @ columns).square().sum(dim=0)
    return 1 - inside / columns.square().sum(dim=0).clamp_min(1e-300)


class SmoothSearch:
    """The one-sample problem where σ' is smooth: its unknowns are the sample's coordinates.

    Args:
        observed: W (m, B) and V (m, B).
        activation: σ.
    """

    def __init__(self, observed: Observed, activation: Activation) -> None:
        self.w, self.activation = observed.w, activation
        self.basis, _ = torch.linalg.qr(centred(observed.v))  # Q (m, B)
        self.uncentred, _ = torch.linalg.qr(observed.v)

    def begin(self, guess: Tensor) -> Tensor:
        """Where to begin for a guess (R, B): there."""
        return guess

    def point(self, directions: Tensor) -> Tensor:
        """Where to begin for unit directions (R, B): of several norms and both signs, the one that costs least."""
        lengths = torch.cat([TRIED_NORMS, -TRIED_NORMS]).to(directions)
        costs = torch.stack([missed(centred(self.columns(length * directions)), self.basis) for length in lengths])
        return lengths[costs.nan_to_num(torch.inf).argmin(dim=0)][:, None] * directions

    def columns(self, x: Tensor) -> Tensor:
        """σ'(W·x) (m, R)."""
        return self.activation.derivatives(self.w @ x.T, 1)[1]

    def settled(self, x: Tensor) -> Tensor:
        """x or −x, whichever fits V's columns with their means; without, both fit alike where σ is even + z."""
        here, there = (missed(self.columns(each), self.uncentred) for each in (x, -x))
        return torch.where((here <= there)[:, None], x, -x)

    def samples(self, x: Tensor, weighted: Tensor) -> tuple[Tensor, Tensor]:
        """Samples and residues, from the unknowns and r_i·x_i (R, B)."""
        return x, (weighted * x).sum(dim=1) / x.square().sum(dim=1).clamp_min(1e-300)

    def system(self, x: Tensor) -> System:
        """½·‖(I − QQᵀ)·s‖² / ‖s‖² and its derivatives at points x (R, B)."""
        _, s, bend = self.activation.derivatives(self.w @ x.T, 2)  # (m, R)
        s = centred(s)
        norm = torch.linalg.vector_norm(s, dim=0).clamp_min(1e-300)  # (R,)
        s, bend = s / norm, bend / norm
        rest = s - self.basis @ (self.basis.T @ s)  # ρ (m, R)
        inside = outer_sums(bend, self.basis, self.w)  # Qᵀ·diag(σ'')·W
        mean = bend.T @ self.w / len(s) ** 0.5  # (R, B): what centring takes
        along = (bend * s).T @ self.w  # (R, B): how the norm changes
        pull, cost = (bend * rest).T @ self.w, rest.square().sum(dim=0)
        # J = (I − QQᵀ − 11ᵀ/m)·diag(σ'')·W − ρ·alongᵀ
        curvature = outer_sums(bend.square(), self.w, self.w) - inside.transpose(1, 2) @ inside
        curvature = curvature - mean[:, :, None] * mean[:, None]
        mixed = pull[:, :, None] * along[:, None]
        curvature = curvature - mixed - mixed.transpose(1, 2) + cost[:, None, None] * along[:, :, None] * along[:, None]
        return System(cost / 2, pull - cost[:, None] * along, curvature)


class StepSearch:
    """The one-sample problem where σ' is low left of 0 and high right of it: its unknowns are q, with s = √m·Q·q.

    Args:
        observed: W (m, B) and V (m, B).
        slopes: the two values of σ'.
    """

    def __init__(self, observed: Observed, slopes: tuple[float, float]) -> None:
        self.w, (self.low, self.high) = observed.w, slopes
        self.basis: Tensor = torch.linalg.qr(observed.v)[0] * len(self.w) ** 0.5  # √m·Q (m, B)

    def begin(self, guess: Tensor) -> Tensor:
        """Where to begin for a guess (R, B): only its direction counts."""
        return self.point(guess)

    def point(self, directions: Tensor) -> Tensor:
        """Where to begin for directions (R, B): the q whose s is nearest to their σ'."""
        return (self.basis.T @ self.steps(self.w @ directions.T > 0)).T / len(self.w)

    def steps(self, is_high: Tensor) -> Tensor:
        """The two values of σ' where they are said to be."""
        return self.low + (self.high - self.low) * is_high.to(self.w)

    def columns(self, q: Tensor) -> Tensor:
        """The two-valued columns (m, R) nearest to s."""
        return self.steps(self.basis @ q.T > (self.low + self.high) / 2)

    def settled(self, q: Tensor) -> Tensor:
        """The unknowns as they are."""
        return q

    def samples(self, q: Tensor, weighted: Tensor) -> tuple[Tensor, Tensor]:
        """Samples of norm 1 and residues, from the unknowns and r_i·x_i (R, B); r_i < 0 where the step is reversed."""
        is_high = self.basis @ q.T > (self.low + self.high) / 2
        agrees = ((self.w @ weighted.T > 0) == is_high).double().mean(dim=0) > 0.5
        sign = torch.where(agrees, 1.0, -1.0).to(q)
        size = torch.linalg.vector_norm(weighted, dim=1).clamp_min(1e-300)
        return (sign / size)[:, None] * weighted, sign * size

    def system(self, q: Tensor) -> System:
        """½·mean((s − low)²·(s − high)²) with its derivatives. For ReLU q = 0 is a zero too, which `distinct` drops."""
        s = self.basis @ q.T  # (m, R)
        rest, bend = (s - self.low) * (s - self.high), 2 * s - self.low - self.high
        curvature = outer_sums(bend.square(), self.basis, self.basis) / len(s)
        return System(rest.square().mean(dim=0) / 2, (rest * bend).T @ self.basis / len(s), curvature)


def search_for(observed: Observed, activation: Activation) -> SmoothSearch | StepSearch:
    """The one-sample problem for an activation."""
    if activation.slopes is not None:
        return StepSearch(observed, activation.slopes)
    return SmoothSearch(observed, activation)


def distinct(columns: Tensor, cost: Tensor, limit: int) -> Tensor:
    """Which candidates to keep, best first, at most `limit`: those whose column is not in the span of better ones.

    Args:
        columns: σ'(W·x) of each candidate (m, R).
        cost: how far each is from a sample (R,).
        limit: B.
    """
    normed = columns / torch.linalg.vector_norm(columns, dim=0).clamp_min(1e-300)
    basis, kept = normed[:, :0], []
    for k in cost.argsort(stable=True).tolist():
        rest = normed[:, k] - basis @ (basis.T @ normed[:, k])
        rest = rest - basis @ (basis.T @ rest)
        size = torch.linalg.vector_norm(rest)
        if size > SAME and torch.isfinite(cost[k]):
            kept.append(k)
            basis = torch.cat([basis, (rest / size)[:, None]], dim=1)
        if len(kept) == limit:
            break
    return torch.tensor(kept, dtype=torch.long, device=cost.device)


def same_costs(before: Tensor, now: Tensor) -> bool:
    """Whether a round has found nothing better, as when noise keeps all costs up."""
    return len(before) == len(now) and bool((now > 0.99 * before).all())


def where_the_rest_is(v: Tensor, columns: Tensor) -> Tensor:
    """Orthonormal rows (B − n, B) that span the samples other than those of the n columns (m, n).

    With the columns projected out of V = S·diag(r)·X, only the rows of the other samples are left.
    """
    basis, _ = torch.linalg.qr(columns)
    rest = v - basis @ (basis.T @ v)
    rows: Tensor = torch.linalg.svd(rest, full_matrices=False)[2]
    return rows[: v.shape[1] - columns.shape[1]]


def samples(observed: Observed, activation: Activation, guess: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """B different samples (B, B) and their residues (B,), the most certain first.

    Args:
        observed: the gradient in the coordinates of the samples' span.
        activation: σ.
        guess: where to begin (B, B); then its directions with other norms, and random ones where the rest must be.
        seed: draws those.
    """
    search, size = search_for(observed, activation), guess.shape[1]
    starts = search.begin(guess)
    points, costs = starts, torch.ones(size).to(guess)  # a guess fills the place of what is not found
    for attempt in range(ROUNDS):
        found, cost = levenberg_marquardt(search.system, starts, STEPS, SOLVED)
        points, costs = torch.cat([points, search.settled(found)]), torch.cat([costs, cost])
        kept, before = distinct(search.columns(points), costs, size), costs[:size]
        points, costs = points[kept], costs[kept]
        is_found = costs < FOUND
        if len(kept) == size and (bool(is_found.all()) or (attempt > 1 and same_costs(before, costs))):
            break
        rest = where_the_rest_is(observed.v, search.columns(points[is_found]))
        starts = search.point(unit(block(RANDOM, len(rest), guess, seed + attempt) @ rest))
        if attempt == 0:  # the guess's norms may be what was wrong
            starts = torch.cat([starts, *[search.begin(length * unit(guess)) for length in OTHER_NORMS]])
    points = torch.cat([points, search.begin(guess)])[:size]  # dependent guesses are still a place to begin
    weighted = linear_least_squares(search.columns(points), observed.v)  # r_i·x_i (B, B)
    return search.samples(points, weighted)
