"""A training batch from one gradient and the weights it was taken at.

    recovered = reconstruct(gradient, weights, as_activation("tanh"), batch=2)
    recovered.x, recovered.y, recovered.verdict

Nothing else goes in: no input, no label. The stages are those of the papers (subspace, tensor, signs and magnitudes),
and then least squares on the gradient itself, which makes the batch exact where the gradient is.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation, Function, as_activation
from sweetspot.attacks.gradients.checks import check_batch, check_gradient, check_span, smallest_width
from sweetspot.attacks.gradients.components import samples
from sweetspot.attacks.gradients.diagonalisation import components
from sweetspot.attacks.gradients.federated import Gradient, Weights, explained
from sweetspot.attacks.gradients.hermite import plan
from sweetspot.attacks.gradients.labels import labelled, labelled_among, unclipped
from sweetspot.attacks.gradients.magnitudes import scaled
from sweetspot.attacks.gradients.moments import Observed, projections, without_lower_orders
from sweetspot.attacks.gradients.polish import joint, signed
from sweetspot.attacks.gradients.refinement import completed, refined, reported_entries
from sweetspot.attacks.gradients.subspace import Span, moment_subspace, row_span
from sweetspot.errors import UserError, check_one_of
from sweetspot.runs.choices import LOSSES, SOURCES, SUBSPACES

EXACT = 1e-8  # a relative gradient residual that only the true batch reaches
EXACT_LABEL = 1e-4  # how far an exact label may be from what it should be
NEAR = 1.1  # with noise: the residual may exceed what no batch of this size could explain by this factor
UNEXPLAINED = 0.05  # or may leave this fraction of the gradient unexplained
JOINT = 600  # the most unknowns that are solved for at once


@dataclass(frozen=True)
class Estimate:
    """A batch that may be the client's.

    Args:
        x: the samples (B, d).
        y: their labels (B,).
        r: their residues f(x) − y (B,), as the gradient of half the sum of squares has them.
        residual: the relative gradient residual, the larger one of ∂L/∂a's and ∂L/∂W's. Needs no ground truth.
    """

    x: Tensor
    y: Tensor
    r: Tensor
    residual: float


@dataclass(frozen=True)
class Recovered(Estimate):
    """What the attack gives back.

    Args:
        verdict: "exact", "up to noise" (no batch of this size explains the gradient much better), or "not recovered".
        tensor: what the tensor stage alone gives.
        unknown: what no gradient can tell through this activation: "sign" (σ odd or even: x or −x), "scale" (σ
            homogeneous: the norm was assumed). Empty where the batch is determined.
        seconds: by stage.
        loss: the client's, as given, assumed or found.
        fits: the losses by which all labels are of the known set, one that is the same for this batch among them;
            empty where none is known, or none fits.
    """

    verdict: str
    tensor: Estimate
    unknown: tuple[str, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    loss: str = LOSSES[0]
    fits: tuple[str, ...] = ()


@dataclass
class Stages:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """`with stages("polish"):`"""
        began = time.perf_counter()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


@dataclass(frozen=True)
class Leak:
    """All that the attacker knows.

    Args:
        gradient: what the client reported.
        weights: what the server sent.
        activation: σ.
        norm: the samples' norm where the attacker knows or, for a homogeneous σ, assumes it.
    """

    gradient: Gradient
    weights: Weights
    activation: Activation
    norm: float | None

    def estimate(self, x: Tensor, r: Tensor, reported: Observed | None = None) -> Estimate:
        """The batch of samples (B, d) and residues (B,), with its labels and its residual on the reported entries."""
        x, r, y = labelled(x, r, self.weights, self.activation)
        model = explained(x, r, self.weights, self.activation)
        missed = [model.a - self.gradient.a, model.w - self.gradient.w]
        if reported is not None:
            missed = [missed[0] * reported.g, missed[1] * reported.v]
        residual = max(
            float(length(miss) / length(seen).clamp_min(1e-300))
            for miss, seen in zip(missed, (self.gradient.a, self.gradient.w), strict=True)
        )
        return Estimate(x, y, r, residual)


def length(tensor: Tensor) -> Tensor:
    """The root of the sum of squares."""
    size: Tensor = torch.linalg.vector_norm(tensor)
    return size


def steepness(loss: str, batch: int) -> float:
    """How many times larger a loss's gradient is than that of ½·Σ(f − y)², which all formulas here are of.

    Example:
        >>> [steepness(loss, 4) for loss in LOSSES]
        [1.0, 2.0, 0.5]
    """
    return {"half-sum": 1.0, "sum": 2.0, "mean": 2.0 / batch}[loss]


def reconstruct(
    gradient: Gradient,
    weights: Weights,
    activation: str | Function | Activation,
    batch: int | None = None,
    seed: int = 0,
    polish: bool = True,
    source: str = "w",
    subspace: str = "span",
    norm: float | None = None,
    labels: Sequence[float] | None = None,
    loss: str | None = LOSSES[0],
) -> Recovered:
    """The batch behind a gradient, with a verdict that needs no ground truth.

    Args:
        gradient: what the client reported.
        weights: what the server sent.
        activation: σ, by name or as any elementwise function.
        batch: B; None: counted, which a gradient without noise allows.
        seed: draws projections and starts.
        polish: whether least squares follows the tensor stage.
        source: the part of the gradient that the tensor stage takes moments of, "w" or "a".
        subspace: "span" of ∂L/∂W's rows, which is exact, or the papers' "moment", which the tensor stage then uses.
        norm: the samples' norm, where it is known; 1 where σ is homogeneous, which hides it.
        labels: the labels that occur, where they are known: they undo an unknown scale of the gradient (clipping), or
            where the loss is None tell which it is.
        loss: the client's: "half-sum", ½·Σ(f − y)², "sum", Σ(f − y)², or "mean", Σ(f − y)² / B. A wrong one leaves the
            samples as they are, but not the labels. None: the one by which all labels are of the known ones.
    """
    assumed = LOSSES[0] if loss is None else loss
    sigma = as_activation(activation)
    check_gradient(gradient, weights)
    orders, stages = plan(sigma), Stages()
    for name, value, known in (
        ("subspace", subspace, SUBSPACES),
        ("source", source, SOURCES),
        ("loss", assumed, LOSSES),
    ):
        check_one_of(f"the {name}", value, known)
    with stages("subspace"):
        batch = counted(Observed.of(gradient.double(), weights.double())) if batch is None else batch
        check_batch(batch, weights)
        sent = gradient.double().over(steepness(assumed, batch))
        leak = Leak(sent, weights.double(), sigma, 1.0 if norm is None and sigma.is_homogeneous else norm)
        observed = Observed.of(leak.gradient, leak.weights)
        span = row_span(observed.v, batch, seed)
        if span.rank < batch or not is_pruned(reported_entries(observed)):
            check_span(span, batch)
        basis = span.basis if subspace == "span" else moment_subspace(observed, orders, source, batch, seed)
    with stages("tensor"):
        tensor = tensor_stage(leak, observed, basis, source, seed)
    best, reported = tensor, None
    if polish:
        with stages("polish"):
            best, reported = polished(leak, observed, span, tensor, seed)
    fits: list[str] = []
    if labels is not None and loss is None:
        fits = fitting_losses(leak, best, labels)
        assumed = fits[0] if fits else assumed
        best, tensor = (of_loss(leak, each, assumed, labels)[0] if fits else each for each in (best, tensor))
    elif labels is not None:
        r = unclipped(best.x, best.r, leak.weights, sigma, labels)
        best = replace(best, y=best.y + best.r - r)
    return Recovered(
        best.x, best.y, best.r, best.residual,
        verdict=verdict(best, span, reported, sigma), tensor=tensor, unknown=unknown(sigma), seconds=stages.seconds,
        loss=assumed, fits=tuple(fits),
    )  # fmt: skip


def of_loss(leak: Leak, found: Estimate, loss: str, labels: Sequence[float]) -> tuple[Estimate, float]:
    """A batch that was found by the first loss as another makes it, and how far its labels are from the known ones."""
    r = found.r * steepness(LOSSES[0], len(found.r)) / steepness(loss, len(found.r))
    x, r, y, missed = labelled_among(found.x, r, leak.weights, leak.activation, labels)
    return replace(found, x=x, r=r, y=y), missed


def fitting_losses(leak: Leak, found: Estimate, labels: Sequence[float]) -> list[str]:
    """The losses by which all labels are of the known ones; under noise, well nearer to one of them than to others."""
    near = {loss: of_loss(leak, found, loss, labels)[1] for loss in LOSSES}
    ordered = sorted({float(label) for label in labels})
    gap = min((b - a for a, b in itertools.pairwise(ordered)), default=1.0)
    allowed = EXACT_LABEL if found.residual <= EXACT else gap / 4
    return [loss for loss in LOSSES if near[loss] <= min(allowed, (1 + EXACT) * min(near.values()) + EXACT)]


def counted(observed: Observed) -> int:
    """How many samples a gradient without noise is of, in double or in single precision: the rank of ∂L/∂W."""
    most = min(observed.v.shape)
    size = min(16, most)
    while True:
        span = row_span(observed.v, size)
        if span.rank < len(span.strengths):
            return span.rank
        if (rank := span.rank_in_single) is not None:
            return rank
        if len(span.strengths) == most:
            raise UserError(
                "the gradient has full rank (noise, or as many samples as dimensions): say how many samples (--batch)"
            )
        size = min(4 * size, most)


def tensor_stage(leak: Leak, observed: Observed, basis: Tensor, source: str, seed: int) -> Estimate:
    """The batch by tensor decomposition alone, in a subspace (d, B)."""
    order, batch = plan(leak.activation).tensor, basis.shape[1]
    near = observed.projected(basis)
    project = projections(without_lower_orders(near, order), source, order)
    directions = components(project, batch, order, seed)
    x, r = scaled(near, source, directions, leak.activation, leak.weights.bias, leak.norm)
    return leak.estimate(x @ basis.T, r)


def polished(
    leak: Leak, observed: Observed, span: Span, start: Estimate, seed: int
) -> tuple[Estimate, Observed | None]:
    """The batch by least squares, from a start, and which entries were counted where not all were."""
    best = searched(leak, observed, span, start, seed)
    if best.residual <= EXACT:
        return best, None
    reported = reported_entries(observed)
    if is_pruned(reported):
        return unpruned(leak, observed, reported, start, seed), reported
    if span.left_over <= EXACT:  # no noise: the search has failed, and more dimensions do not help it
        return best, None
    x, r = refined(observed, leak.activation, best.x, best.r)
    return min(best, leak.estimate(x, r), key=lambda each: each.residual), None


def unpruned(leak: Leak, observed: Observed, reported: Observed, start: Estimate, seed: int) -> Estimate:
    """The batch from what was reported: the rest filled in for a start, then least squares without it."""
    batch = len(start.r)
    whole = replace(observed, v=completed(observed.v, reported.v, batch, seed))
    span = row_span(whole.v, batch, seed)
    guess = tensor_stage(leak, whole, span.basis, "w", seed)
    known = reported.v.sum(dim=1) > batch  # units of which enough was reported to fill in the rest
    searchable = whole.of_units(known) if int(known.sum()) > smallest_width(batch) else whole
    found: list[Estimate] = []
    for begin in (searched(leak, searchable, span, guess, seed), guess, start):
        x, r = refined(observed, leak.activation, begin.x, begin.r, reported)
        found.append(leak.estimate(x, r, reported))
        if found[-1].residual <= EXACT:
            break
    return min(found, key=lambda each: each.residual)


def is_pruned(reported: Observed) -> bool:
    """Whether entries are missing from ∂L/∂a, or from rows and columns of ∂L/∂W that others of are there."""
    by_row, by_column = reported.v.sum(dim=1), reported.v.sum(dim=0)
    possible = (by_row > 0).sum() * (by_column > 0).sum()
    rows = by_row > 0
    return bool(by_row.sum() < 0.999 * possible or reported.g[rows].mean() < 0.999)


def searched(leak: Leak, observed: Observed, span: Span, start: Estimate, seed: int) -> Estimate:
    """The batch in the span of ∂L/∂W's rows: one sample at a time, then all at once where that is not exact."""
    near, sigma = observed.projected(span.basis), leak.activation
    x, r = samples(near, sigma, start.x @ span.basis, seed)
    if sigma.slopes is not None:
        length = 1.0 if leak.norm is None else leak.norm
        return leak.estimate(length * x @ span.basis.T, r / length)
    x, r = signed(near, sigma, x, r, leak.weights.bias)
    best = leak.estimate(x @ span.basis.T, r)
    if best.residual > EXACT and r.numel() * (len(r) + 1) <= JOINT:
        for begin in ((x, r), (start.x @ span.basis, start.r)):
            x, r = joint(near, sigma, *begin)
            best = min(best, leak.estimate(x @ span.basis.T, r), key=lambda each: each.residual)
    return best


def determined(reported: Observed, batch: int, activation: Activation) -> bool:
    """Whether the reported entries leave no coordinate of a sample open.

    Through a smooth σ' every entry depends on all of x. Where σ' is a step, a coordinate shows in its own column of
    ∂L/∂W and in ∂L/∂a only; half of ∂L/∂a's equations are counted, because only active units have one.
    """
    if activation.slopes is None:
        return True
    left_open = (batch - reported.v.sum(dim=0)).clamp_min(0).sum()
    return bool(left_open < reported.g.sum() / 2)


def verdict(best: Estimate, span: Span, reported: Observed | None, activation: Activation) -> str:
    """Whether to believe a batch, from the gradient alone."""
    if best.residual <= EXACT:
        return "exact" if reported is None or determined(reported, len(best.r), activation) else "not recovered"
    noise = span.left_over
    limit = max(NEAR * noise, math.hypot(noise, UNEXPLAINED))
    if reported is None and noise > EXACT and span.stands_out and best.residual <= limit:
        return "up to noise"
    return "not recovered"


def unknown(activation: Activation) -> tuple[str, ...]:
    """What no gradient can tell of a sample through this activation."""
    sign = ("sign",) if activation.is_odd or activation.is_even else ()
    return (*sign, "scale") if activation.is_homogeneous else sign
