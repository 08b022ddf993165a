"""Certificates against closed forms, an optimiser, full Jacobians, and attackers that try to exceed them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.releases import Chain, Clip, Dropout, Gaussian, Laplace, Quantise, TopK
from sweetspot.lightning_modules.defences.releases.base import unit_rms
from sweetspot.metrics.certificates import (
    certificate,
    clopper_pearson,
    forward_trace,
    gaussian_of,
    leak_nats,
    mean_reid_bound,
    reid_bayes,
    reid_bound,
    reid_measured,
    unbiased_mse,
    worst_input_nats,
)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(seed: int, count: int = 400, classes: int = 2) -> tuple[Tensor, Tensor, float]:
    """Representations with unequal directions and sizes, their classes, and a σ: from hopeless to hidden."""
    rng = np.random.default_rng(seed)
    width = int(rng.choice([1, 2, 5, 30, 150]))
    scales = torch.from_numpy(rng.gamma(1.0, 1.0, width))
    sizes = torch.from_numpy(rng.gamma(2.0, 0.5, (count, 1)))
    y = torch.arange(count) % classes
    h = drawn(count, width, seed=seed) * scales * sizes + 5 * drawn(classes, width, seed=seed + 1)[y]
    return h, y, float(10 ** rng.uniform(-1, 1.3))


# ------------------------------------------------------------------ nats


def test_nats_of_gaussian_data_are_their_mutual_information() -> None:
    mixing = drawn(3, 3)
    x = drawn(200_000, 3, seed=1)
    y = torch.arange(len(x)) % 4
    h = x @ mixing.T + 7.0 * drawn(4, 3, seed=2)[y]  # the centres are the label's, and no leak
    for sigma in (0.1, 1.0, 10.0):
        exact = 0.5 * torch.linalg.slogdet(torch.eye(3) + mixing @ mixing.T / sigma**2)[1]
        assert leak_nats(h, y, sigma).nats == pytest.approx(float(exact), rel=0.01)


@pytest.mark.parametrize("width", [3, 40, 300])
def test_nats_equal_the_dense_log_determinant_whichever_side_is_smaller(width: int) -> None:
    h, y, sigma = drawn(60, width), torch.tensor([0] * 40 + [1] * 15 + [2] * 5), 0.3
    logdet, radius = 0.0, 0.0
    for c in range(3):
        own = h[y == c].numpy()
        covariance = np.cov(own.T, bias=True).reshape(width, width)
        share = len(own) / len(h)
        logdet += share * 0.5 * np.linalg.slogdet(np.eye(width) + covariance / sigma**2)[1]
        radius += share * np.mean(np.sum((own - own.mean(axis=0)) ** 2, axis=1)) / (2 * sigma**2)
    assert leak_nats(h, y, sigma) == pytest.approx((logdet, logdet, radius))


def test_queries_divide_the_variance_everywhere() -> None:
    h, y = drawn(200, 6), torch.arange(200) % 2
    assert leak_nats(h, y, 1.0, queries=4) == pytest.approx(leak_nats(h, y, 0.5))
    assert reid_bound(h.norm(dim=1), 1.0, queries=4) == pytest.approx(reid_bound(h.norm(dim=1), 0.5))
    assert reid_bayes(h, y, 1.0, queries=4) == reid_bayes(h, y, 0.5)
    assert worst_input_nats(2.0, 1.0, queries=4) == worst_input_nats(2.0, 0.5) == 8.0
    assert unbiased_mse(lambda x: 3 * x, h, 1.0, queries=4) == pytest.approx(unbiased_mse(lambda x: 3 * x, h, 0.5))


def test_no_clipped_inputs_exceed_the_worst_input_form() -> None:
    clip, sigma = 1.5, 0.4
    for seed in range(10):
        h = Clip(clip=clip)(5 * drawn(100, 20, seed=seed))
        assert leak_nats(h, torch.zeros(100), sigma).nats <= worst_input_nats(clip, sigma)
    ends = torch.tensor([[clip], [-clip]])
    assert leak_nats(ends, torch.zeros(2), sigma).radius == pytest.approx(worst_input_nats(clip, sigma))


# ------------------------------------------------------------------ re-identification


def by_optimiser(a: np.ndarray) -> float:
    """The maximum over p by sequential quadratic programming, from several starts."""
    starts = np.random.default_rng(0).dirichlet(np.ones(len(a)), 8)
    found = [
        minimize(
            lambda p: -np.mean(norm.cdf(norm.ppf(p) + a)), start, bounds=[(1e-9, 1 - 1e-9)] * len(a),
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, method="SLSQP", options={"ftol": 1e-12},
        )
        for start in starts
    ]  # fmt: skip
    return max(-float(each.fun) for each in found if each.success)


@pytest.mark.parametrize("seed", range(8))
def test_the_bisection_finds_what_an_optimiser_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.gamma(1.0, 1.0, int(rng.integers(2, 6))) + 0.05
    found = float(reid_bound(torch.from_numpy(a), 1.0))
    assert found == pytest.approx(by_optimiser(a), abs=2e-5)


def test_two_candidates_have_a_closed_form_and_the_bound_is_tight() -> None:
    for apart in (0.2, 1.0, 3.0):
        h, exact = torch.tensor([[0.0, 0.0], [0.0, apart]]), norm.cdf(apart / 2)
        assert float(reid_bound(torch.tensor([apart / 2] * 2), 1.0)) == pytest.approx(exact)
        bayes = reid_bayes(h, torch.zeros(2), 1.0, trials=40_000)
        assert bayes.gallery == 2
        assert bayes.interval[0] <= exact <= bayes.interval[1]


@pytest.mark.parametrize("width", [1, 5])
def test_three_candidates_on_a_line_have_a_closed_form(width: int) -> None:
    """Unequal distances to the centre: whoever compares inner products alone prefers the far ones."""
    direction = drawn(1, width) / drawn(1, width).norm()
    h = torch.tensor([[0.0], [1.0], [5.0]]) * direction
    exact = (norm.cdf(0.5) + (norm.cdf(2.0) - norm.cdf(-0.5)) + norm.cdf(2.0)) / 3
    low, high = reid_bayes(h, torch.zeros(3), 1.0, trials=60_000).interval
    assert low <= exact <= high


def test_many_galleries_at_once_are_bounded_as_one_by_one() -> None:
    r = drawn(2, 7, 30).abs() * torch.tensor([0.1, 1.0]).view(2, 1, 1)
    alone = torch.stack([torch.stack([reid_bound(each, 0.7) for each in row]) for row in r])
    assert torch.equal(reid_bound(r, 0.7), alone)


@pytest.mark.parametrize("seed", range(24))
def test_no_attacker_exceeds_bayes_and_bayes_never_the_bound(seed: int) -> None:
    h, y, sigma = problem(seed)
    options: dict[str, Any] = {"gallery": 20 + 10 * (seed % 9), "seed": seed}
    bayes = reid_bayes(h, y, sigma, trials=10_000, **options)
    assert bayes.interval[0] <= mean_reid_bound(h, y, sigma, trials=10_000, **options)
    z = h + sigma * drawn(*h.shape, seed=seed + 100)
    release = TopK(keep=0.3)
    attackers = [
        reid_measured(z, h, y, **options),
        reid_measured(z, h, y, distance="l1", **options),
        reid_measured(Quantise(bits=2)(z), h, y, **options),
        reid_measured(release(z), release(h), y, **options),
    ]
    # one z for each of 400 inputs, so four standard errors of either; 96 comparisons are made
    error = 4 * math.hypot(*(math.sqrt(max(bayes.rate * (1 - bayes.rate), 0.01) / n) for n in (400, 10_000)))
    assert all(each.rate <= bayes.rate + error for each in attackers)
    assert abs(attackers[0].rate - bayes.rate) <= error  # which is the optimal attack, measured


def test_the_bound_is_no_looser_than_the_figures_that_were_checked() -> None:
    h, y = drawn(1000, 64), torch.arange(1000) % 10
    for sigma, least, most in ((10.0, 0.04, 0.08), (5.0, 0.15, 0.25), (3.0, 0.45, 0.6)):
        bayes, bound = reid_bayes(h, y, sigma).rate, mean_reid_bound(h, y, sigma)
        assert least < bayes < most
        assert 1 < bound / bayes < 1.25  # .126/.110 and .490/.413 were


def test_more_noise_tells_less_and_more_queries_tell_more() -> None:
    h, y = drawn(300, 10), torch.arange(300) % 3
    sigmas, queries = (0.3, 1.0, 3.0, 10.0), (1, 10, 100)
    for figure in (
        lambda sigma, k: leak_nats(h, y, sigma, k).nats,
        lambda sigma, k: mean_reid_bound(h, y, sigma, queries=k),
        lambda sigma, k: reid_bayes(h, y, sigma, queries=k).rate,
    ):
        assert (np.diff([figure(sigma, 1) for sigma in sigmas]) < 0).all()
        assert (np.diff([figure(3.0, k) for k in queries]) > 0).all()


def test_degenerate_galleries() -> None:
    same, y = torch.ones(50, 4), torch.zeros(50)
    assert reid_bayes(same, y, 1.0).interval[0] <= 1 / 50 <= reid_bayes(same, y, 1.0).interval[1]
    assert mean_reid_bound(same, y, 1.0) == pytest.approx(1 / 50, abs=1e-6)
    assert reid_measured(same + drawn(50, 4), same, y).rate == pytest.approx(1 / 50)
    assert leak_nats(same, y, 1.0) == (0, 0, 0)
    one = torch.ones(1, 4)
    assert (reid_bayes(one, torch.zeros(1), 1.0).rate, mean_reid_bound(one, torch.zeros(1), 1.0)) == (1, 1)
    assert leak_nats(one, torch.zeros(1), 1.0).nats == 0
    far = drawn(50, 4)
    assert reid_bayes(far, y, 1e-9).rate == mean_reid_bound(far, y, 1e-9) == 1
    assert math.isfinite(leak_nats(far, y, 1e-9).radius)


def test_an_input_at_the_centre_takes_what_the_others_leave() -> None:
    """For a = 0 the curve Φ(Φ⁻¹(p) + a) is p itself: the optimum is an edge that no formula for u reaches."""
    apart = 2.0
    others = norm.cdf(-apart / 2)  # p of the others where the gradient is 1
    exact = (3 * norm.cdf(apart / 2) + (1 - 3 * others)) / 4
    assert float(reid_bound(torch.tensor([0.0, apart, apart, apart]), 1.0)) == pytest.approx(exact, abs=1e-6)


def test_small_classes_have_as_many_candidates_as_they_have_inputs() -> None:
    h, y = drawn(130, 3), torch.tensor([0] * 120 + [1] * 10)
    bayes = reid_bayes(h, y, 1e6, gallery=100, trials=26_000)
    assert bayes.gallery == 10
    assert bayes.blind == pytest.approx((120 / 100 + 10 / 10) / 130, rel=0.02)
    assert bayes.rate == pytest.approx(bayes.blind, abs=0.002)
    measured = reid_measured(h, h, y)
    assert (measured.rate, measured.gallery, measured.trials) == (1, 10, 130)


def test_only_the_attacked_inputs_are_searched_among_all_candidates() -> None:
    h, y = drawn(300, 5), torch.arange(300) % 3
    inputs = torch.tensor([7, 250, 12])
    z = h[inputs].clone()
    z[1] = h[253]  # another input of its class
    found = reid_measured(z, h, y, inputs=inputs)
    assert found.hits is not None
    assert found.hits.tolist() == [1, 0, 1]
    assert found.rate == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="squared, l1"):
        reid_measured(z, h, y, inputs=inputs, distance="cosine")


def test_a_seed_repeats_and_another_draws_anew() -> None:
    h, y, _ = problem(3)
    assert reid_bayes(h, y, 2.0, seed=1) == reid_bayes(h, y, 2.0, seed=1)
    assert reid_bayes(h, y, 2.0, seed=1) != reid_bayes(h, y, 2.0, seed=2)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    seen = [clopper_pearson(hits, 200) for hits in rng.binomial(200, 0.1, 2000)]
    assert np.mean([low <= 0.1 <= high for low, high in seen]) >= 0.95


# ------------------------------------------------------------------ the diagnostic


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 5)).double()


class Cubed(torch.autograd.Function):
    """x³, without a forward mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 3 * x**2 * gradient


def test_the_trace_is_that_of_the_whole_jacobian() -> None:
    network, x = encoder(), drawn(4, 1, 8, 8)
    with torch.no_grad():
        estimated = forward_trace(network, x, 3000, torch.Generator().manual_seed(0))
    for each, trace in zip(x, estimated, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda v: network(v[None])[0], each).reshape(5, 64)
        assert float(trace) == pytest.approx(float(jacobian.square().sum()), rel=0.1)


def test_a_scaling_has_a_closed_form_in_either_mode() -> None:
    x = drawn(6, 3, 4).abs() + 0.5
    assert unbiased_mse(lambda v: 2 * v, x, sigma=0.6) == pytest.approx(0.36 / 4)
    assert unbiased_mse(lambda v: torch.zeros_like(v[:, :1]) * v[:, :1], x, 1.0) == math.inf
    exact = (0.36 / (9 * x**4).flatten(1).mean(dim=1)).mean()  # diagonal: every probe is exact
    assert unbiased_mse(lambda v: v**3, x, sigma=0.6) == pytest.approx(float(exact))
    assert unbiased_mse(Cubed.apply, x, sigma=0.6) == pytest.approx(float(exact))


# ------------------------------------------------------------------ releases


def test_what_a_chain_adds_its_noise_to() -> None:
    z = drawn(4, 2, 3, 3)
    found = gaussian_of(Chain(Gaussian(sigma=0.5)))
    assert found is not None
    assert (found.sigma, found.clip) == (0.5, None)
    assert torch.equal(found.before(z), unit_rms(z))
    clipped = gaussian_of(Chain(Clip(clip=2.0), TopK(keep=0.5), Gaussian(sigma=1.0, unit="raw"), Quantise(bits=4)))
    assert clipped is not None
    assert (clipped.sigma, clipped.clip) == (1.0, 2.0)
    assert torch.equal(clipped.before(z), TopK(keep=0.5)(Clip(clip=2.0)(z)))


def test_noise_adds_up_unless_it_is_scaled_in_between() -> None:
    raw = {"unit": "raw"}
    both = gaussian_of(Chain(Gaussian(sigma=3.0), Laplace(scale=1.0, **raw), Gaussian(sigma=4.0, **raw)))
    assert both is not None
    assert both.sigma == 5
    scaled = gaussian_of(Chain(Gaussian(sigma=3.0, **raw), Gaussian(sigma=4.0)))
    assert scaled is not None
    assert scaled.sigma == 3
    z = drawn(2, 5)
    late = gaussian_of(Chain(Laplace(scale=1.0), Gaussian(sigma=4.0, **raw)))
    assert late is not None
    assert torch.equal(late.before(z), unit_rms(z))


def test_a_clip_that_may_be_undone_is_none() -> None:
    for chain in (Chain(Clip(clip=1.0), Gaussian(sigma=1.0)), Chain(Clip(), Quantise(bits=1), Gaussian(unit="raw"))):
        found = gaussian_of(chain)
        assert found is not None
        assert found.clip is None


def test_without_gaussian_noise_there_is_no_certificate() -> None:
    for chain in (
        Chain(), Chain(Laplace()), Chain(Quantise(bits=4)), Chain(Dropout(drop=0.5), Gaussian()),
        Chain(Laplace(), Clip(), Gaussian(unit="raw")),
    ):  # fmt: skip
        assert gaussian_of(chain) is None
    assert certificate(drawn(10, 3), torch.zeros(10), None) is None


def test_a_certificate_says_all_of_it() -> None:
    network, x = encoder(), drawn(120, 1, 8, 8)
    with torch.no_grad():
        h = network(x)
    y = torch.arange(120) % 2
    found = certificate(h, y, 0.5, clip=3.0, encoder=network, x=x[:10], queries=2, seed=5, gallery=50, trials=4000)
    assert found is not None
    assert found["nats"] == found["nats_logdet"] < found["nats_radius"]
    assert found["reid_interval"][0] <= found["reid_bayes"] <= found["reid_interval"][1]
    assert 1 / 50 < found["reid_bayes"] < found["reid_bound"] < 1
    assert found["holds"]
    assert (found["gallery"], found["queries"], found["worst_input_nats"]) == (50, 2, 36.0)
    assert found["unbiased_mse"] == pytest.approx(unbiased_mse(network, x[:10], 0.5, seed=5) / 2)
    plain = certificate(h, y, 0.5)
    assert plain is not None
    assert plain["unbiased_mse"] is plain["worst_input_nats"] is None


def test_of_a_tie_the_true_input_is_not_preferred() -> None:
    h, y = torch.zeros(400, 3), torch.zeros(400, dtype=torch.long)
    found = reid_measured(h, h, y, gallery=50)
    assert found.rate == pytest.approx(1 / 50)
    assert found.picked is not None
    assert (found.picked == torch.arange(400)).double().mean().item() < 0.06
