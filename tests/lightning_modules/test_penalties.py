"""Penalties against second implementations: distance correlation, compression, CEM, the adversary."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from torch import Tensor

from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.penalties import (
    CEM,
    PENALTIES,
    VIB,
    Adversary,
    Compress,
    NoPeek,
    Place,
    cem_loss,
    compression,
    distance_correlation,
    gaussian_kl,
)
from sweetspot.lightning_modules.defences.penalties.cem import clustered

IMAGES = Place((1, 28, 28), (4,), 3, sigma=1.0)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])


def dcor_by_scipy(x: Tensor, z: Tensor) -> float:
    """Distance correlation as Székely et al. write it, from SciPy's distances."""
    centred = []
    for each in (x, z):
        d = torch.from_numpy(squareform(pdist(each.flatten(1).double().numpy())))
        centred.append(d - d.mean(0) - d.mean(1)[:, None] + d.mean())
    a, b = centred
    n = len(x) ** 2
    covariance, of_x, of_z = (a * b).sum() / n, (a * a).sum() / n, (b * b).sum() / n
    return math.sqrt(covariance.clamp_min(0) / math.sqrt(of_x * of_z))


@pytest.mark.parametrize("shape", [(30, 5), (30, 2, 3, 3)])
def test_distance_correlation_equals_scipys(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 7)
    z = torch.randn(shape) + x.flatten(1)[:, :1].view(30, *[1] * (len(shape) - 1))
    assert distance_correlation(x, z).item() == pytest.approx(dcor_by_scipy(x, z), rel=1e-4)


def test_distance_correlation_is_1_for_a_rotation_and_small_for_independence() -> None:
    torch.manual_seed(0)
    x = torch.randn(4000, 3)
    rotation = torch.linalg.qr(torch.randn(3, 3)).Q
    assert distance_correlation(x, 5 * x @ rotation + 1).item() == pytest.approx(1, abs=1e-3)
    assert distance_correlation(x, torch.randn(4000, 3)).item() < 0.1
    # squared distances, a published mistake, would call this dependence none
    line = torch.randn(1000, 1)
    assert distance_correlation(line, line.square()).item() > 0.4


def test_distance_correlation_has_its_gradient_and_is_finite_where_points_meet() -> None:
    x, z = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: distance_correlation(x, z), z)
    same = torch.zeros(6, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(NoPeek().penalty(same, Y[:6], torch.randn(6, 3)), same)
    assert gradient.isfinite().all()


# ---------------------------------------------------------------------- measured in noise


def test_compression_and_vib_are_kullback_leibler_divergences() -> None:
    h, centres, sigma = torch.randn(5, 3).double(), torch.randn(5, 3).double(), 0.7
    ours = torch.distributions.Normal(h, sigma)
    to_centres = torch.distributions.kl_divergence(ours, torch.distributions.Normal(centres, sigma)).sum(dim=1).mean()
    assert compression(h, centres, sigma).item() == pytest.approx(to_centres.item())
    unit = torch.distributions.Normal(torch.zeros(5, 3).double(), 1.0)
    expected = torch.distributions.kl_divergence(ours, unit).sum(dim=1).mean()
    assert gaussian_kl(h, sigma).item() == pytest.approx(expected.item())


def test_centres_follow_their_classes_and_stand_still_in_evaluation() -> None:
    torch.manual_seed(0)
    penalty = Compress()
    penalty.put(IMAGES)
    means = torch.randn(3, 4)
    first = means[Y] + 0.01 * torch.randn(12, 4)
    penalty.penalty(first, Y, first)
    assert torch.allclose(penalty.centres, means, atol=0.05), "the first members are a centre at once"
    for _ in range(200):
        penalty.penalty(2 * means[Y], Y, first)
    assert torch.allclose(penalty.centres, 2 * means, atol=1e-3)
    penalty.eval()
    value = penalty.penalty(first, Y, first)
    assert torch.allclose(penalty.centres, 2 * means, atol=1e-3)
    assert value.item() == pytest.approx((first - 2 * means[Y]).square().sum(dim=1).mean().item() / 2, rel=1e-3)
    lone = Compress()
    lone.put(IMAGES)
    lone.penalty(first[:1], Y[:1], first)
    assert lone.seen.tolist() == [True, False, False]


@pytest.mark.parametrize("name", ["compress", "vib", "cem"])
def test_what_is_measured_in_noise_refuses_to_go_without(name: str) -> None:
    with pytest.raises(UserError, match="--release gaussian --sigma"):
        PENALTIES[name]().put(Place((1, 28, 28), (4,), 3))


# ---------------------------------------------------------------------- CEM


def cem_by_loop(z: Tensor, y: Tensor, centres: Tensor, sigma: float) -> float:
    """Σ_c Σ_j w_cj·max(0, log(v_cj + .01) − log(.125σ² + .01)) / classes, one cluster after the other."""
    total = 0.0
    for c in range(len(centres)):
        members: list[list[Tensor]] = [[] for _ in centres[c]]
        for row in z[y == c]:
            away = [((row - centre) ** 2).mean() for centre in centres[c]]
            members[int(torch.stack(away).argmin())].append(min(away))
        count = sum(map(len, members))
        for group in members:
            if group:
                v = float(sum(group)) / len(group)
                total += len(group) / count * max(0.0, math.log(v + 0.01) - math.log(0.125 * sigma**2 + 0.01))
    return total / len(centres)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 3.0])
def test_cem_equals_the_loop(sigma: float) -> None:
    torch.manual_seed(0)
    z, centres = torch.randn(12, 4).double(), torch.randn(3, 5, 4).double()
    assert cem_loss(z, Y, centres, sigma).item() == pytest.approx(cem_by_loop(z, Y, centres, sigma), rel=1e-9)
    ragged = torch.tensor([0] * 7 + [2] * 5)
    assert cem_loss(z, ragged, centres, sigma).item() == pytest.approx(cem_by_loop(z, ragged, centres, sigma))


def test_cem_has_its_gradient() -> None:
    z = torch.randn(12, 4, dtype=torch.float64, requires_grad=True)
    centres = torch.randn(3, 2, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: cem_loss(z, Y, centres, 0.5), z)


def test_clusters_are_found_and_every_class_has_its_own() -> None:
    torch.manual_seed(0)
    true = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    z = true.repeat(50, 1) + 0.1 * torch.randn(150, 2)
    found = clustered(z, 3, torch.Generator().manual_seed(3))
    assert torch.cdist(true, found).amin(dim=1).max() < 0.2
    assert clustered(z[:2], 5, torch.Generator().manual_seed(0)).shape == (5, 2), "fewer members than clusters"
    penalty = CEM(clusters=2)
    penalty.put(Place((1, 28, 28), (2,), 3, 1.0))
    penalty.begin_epoch(z, torch.arange(150) % 3)
    assert torch.allclose(penalty.centres.mean(dim=1), true, atol=0.2)


# ---------------------------------------------------------------------- the adversary


@pytest.mark.parametrize("against", ["ssim", "l1"])
def test_the_proxy_learns_by_itself_and_the_network_is_told_to_foil_it(against: str) -> None:
    torch.manual_seed(0)
    penalty = Adversary(against=against, proxy_lr=3e-3)
    penalty.put(Place((1, 28, 28), (784,), 3))
    x = torch.rand(16, 1, 7, 7).repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    z = x.flatten(1).requires_grad_()
    before = penalty.value(z, Y, x, z)
    for _ in range(150):
        penalty.learn(z, x)
    assert z.grad is None, "the network has no part in the proxy's learning"
    after = penalty.value(z, Y, x, z)
    assert after > before + 0.05, "a better proxy costs the network more"
    (gradient,) = torch.autograd.grad(after, z)
    assert gradient.abs().max() > 0
    assert all(parameter.grad is None for parameter in penalty.proxy.parameters()), "nor has the proxy in the penalty"


def test_the_adversarys_optimiser_goes_on_where_it_was() -> None:
    torch.manual_seed(0)
    whole = Adversary(against="l1")
    whole.put(IMAGES)
    z, x = torch.randn(12, 4), torch.rand(12, 1, 28, 28)
    for _ in range(3):
        whole.learn(z, x)
    resumed = Adversary(against="l1")
    resumed.put(IMAGES)
    resumed.load_state_dict(whole.state_dict())
    resumed.load_own_state(copy.deepcopy(whole.own_state()))
    for penalty in (whole, resumed):
        penalty.learn(z, x)
    assert all(torch.equal(whole.state_dict()[name], value) for name, value in resumed.state_dict().items())
    assert {id(p) for p in whole.own_parameters()} == {id(p) for p in whole.parameters()}


def test_the_adversary_refuses_what_it_cannot_rebuild() -> None:
    with pytest.raises(UserError, match="at least 11 px; use --against l1"):
        Adversary().put(Place((10,), (4,), 3))
    with pytest.raises(UserError, match="tokens"):
        Adversary().put(Place((64,), (64, 128), 3, is_text=True))


@pytest.mark.parametrize("name", ["nopeek", "adversary", "cem"])
def test_what_compares_images_refuses_tokens(name: str) -> None:
    with pytest.raises(UserError, match=f"--defence {name} looks at images or vectors"):
        PENALTIES[name]().put(Place((64,), (64, 128), 3, 1.0, is_text=True))


def test_vib_and_compress_take_maps() -> None:
    z = torch.randn(12, 2, 3, 3)
    for penalty in (VIB(), Compress()):
        penalty.put(Place((1, 28, 28), (2, 3, 3), 3, 1.0))
        assert penalty.penalty(z, Y, z).isfinite()
