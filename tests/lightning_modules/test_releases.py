"""What leaves the client: moments of the noise, how much is kept, how coarse it is; bottlenecks and options."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences import RELEASES, Bottleneck, Defence, Penalty, option
from sweetspot.lightning_modules.defences.bottlenecks import parsed
from sweetspot.lightning_modules.defences.releases import (
    Chain,
    Clip,
    Dropout,
    Gaussian,
    Laplace,
    Quantise,
    TopK,
    channel_name,
    channel_release,
)
from sweetspot.registry import Registry

SHAPES = [(6, 40), (6, 4, 5, 2), (6, 3, 40)]


@pytest.mark.parametrize("name", [*RELEASES])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_release_keeps_the_shape_lets_gradients_through_and_is_random_if_it_says_so(
    name: str, shape: tuple[int, ...]
) -> None:
    release, z = RELEASES[name](), torch.randn(shape, requires_grad=True)
    answers = [release(z) for _ in range(2)]
    assert answers[0].shape == z.shape
    assert torch.equal(*answers) != release.random
    (gradient,) = torch.autograd.grad(answers[0].sum(), z)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0


@pytest.mark.parametrize(
    ("release", "variance", "kurtosis"),
    [(Gaussian(sigma=0.3, unit="raw"), 0.09, 3), (Laplace(scale=0.3, unit="raw"), 0.18, 6)],
)
def test_noise_has_the_moments_it_should(release: Gaussian | Laplace, variance: float, kurtosis: float) -> None:
    torch.manual_seed(0)
    noise = release(torch.zeros(1, 10**6)).double()
    assert noise.mean().item() == pytest.approx(0, abs=5e-3)
    assert noise.square().mean().item() == pytest.approx(variance, rel=0.01)
    assert noise.pow(4).mean().item() / variance**2 == pytest.approx(kurtosis, rel=0.05)


def test_noise_cannot_be_undone_by_a_larger_z_unless_it_is_told_so() -> None:
    z = torch.randn(4, 30)
    torch.manual_seed(0)
    small = Gaussian(sigma=0.5)(z)
    torch.manual_seed(0)
    assert torch.allclose(Gaussian(sigma=0.5)(1000 * z), small, atol=1e-4)
    torch.manual_seed(0)
    assert torch.allclose(Gaussian(sigma=0.5, unit="raw")(1000 * z), 1000 * z, rtol=0.5, atol=3)
    assert Gaussian(sigma=1e-9)(3 * z).square().mean(dim=1).tolist() == pytest.approx([1] * 4, rel=1e-4)
    tokens = torch.randn(2, 7, 30) * torch.arange(1, 8).view(1, 7, 1)
    assert Gaussian(sigma=1e-9)(tokens).square().mean(dim=2).flatten().tolist() == pytest.approx([1] * 14, rel=1e-4)


@pytest.mark.parametrize("name", [*RELEASES])
def test_a_dead_representation_gives_finite_answers_and_gradients(name: str) -> None:
    z = torch.zeros(3, 8, requires_grad=True)
    answer = RELEASES[name]()(z)
    (gradient,) = torch.autograd.grad(answer.sum(), z)
    assert answer.isfinite().all()
    assert gradient.isfinite().all()


def test_noise_grows_during_the_first_third_and_is_whole_wherever_nobody_trains() -> None:
    release, z = Gaussian(sigma=1.0, unit="raw"), torch.zeros(1, 10**5)
    assert release(z).std().item() == pytest.approx(1, rel=0.02), "before anyone says how far the training is"
    for progress, share in ((0.0, 0.0), (1 / 6, 0.5), (1 / 3, 1.0), (1.0, 1.0)):
        release.at(progress)
        assert release(z).std().item() == pytest.approx(share, rel=0.02, abs=1e-6)
    at_once = Gaussian(ramp=0.0, unit="raw", sigma=1.0)
    at_once.at(0.0)
    assert at_once(z).std().item() == pytest.approx(1, rel=0.02)


def test_dropout_and_topk_leave_out_what_they_should() -> None:
    torch.manual_seed(0)
    z = torch.randn(100, 200)
    dropped = Dropout(drop=0.3)(z)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert torch.equal(dropped[dropped != 0], z[dropped != 0])
    kept = TopK(keep=0.1)(z)
    assert (kept != 0).sum(dim=1).tolist() == [20] * 100
    assert torch.equal(kept.abs().sum(dim=1), z.abs().topk(20, dim=1).values.sum(dim=1)) or torch.allclose(
        kept.abs().sum(dim=1), z.abs().topk(20, dim=1).values.sum(dim=1)
    )
    assert (TopK(keep=1e-6)(z) != 0).sum(dim=1).tolist() == [1] * 100, "never nothing"


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_quantise_has_so_many_levels_and_rounds_to_the_nearest(bits: int) -> None:
    torch.manual_seed(0)
    z = torch.randn(3, 5000)
    coarse = Quantise(bits=bits)(z)
    for row, original in zip(coarse, z, strict=True):
        levels = torch.linspace(original.min().item(), original.max().item(), 2**bits)
        assert len(row.unique()) <= 2**bits
        nearest = levels[(original[:, None] - levels).abs().argmin(dim=1)]
        assert torch.allclose(row, nearest, atol=1e-5)
    assert torch.equal(Quantise(bits=bits)(torch.full((2, 5), 3.0)), torch.full((2, 5), 3.0)), "a constant stays"


def test_quantise_lets_gradients_pass_as_if_nothing_was_rounded() -> None:
    z = torch.randn(2, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad((Quantise(bits=1)(z) * torch.arange(5)).sum(), z)
    assert torch.equal(gradient, torch.arange(5.0).expand(2, 5))


def test_clip_shortens_what_is_long_and_nothing_else() -> None:
    z = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    clipped = Clip(clip=1.0)(z)
    assert clipped.norm(dim=1).tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert torch.allclose(clipped[0], z[0] / 5)
    (gradient,) = torch.autograd.grad(clipped.sum(), z)
    assert gradient.isfinite().all()


# ---------------------------------------------------------------------- bottlenecks


@pytest.mark.parametrize(
    ("text", "h_shape", "z_shape", "weights"),
    [
        ("16", (16, 5, 5), (16,), 400 * 16 + 16),
        ("120-16", (16, 5, 5), (16,), 400 * 120 + 120 + 120 * 16 + 16),
        ("8", (30,), (8,), 30 * 8 + 8),
        ("1x1-4", (16, 5, 5), (4, 5, 5), 16 * 4 + 4),
        ("1x1-8-4", (16, 5, 5), (4, 5, 5), 16 * 8 + 8 + 8 * 4 + 4),
        ("32", (7, 64), (7, 32), 64 * 32 + 32),
    ],
)
def test_a_bottleneck_squeezes_and_widens(
    text: str, h_shape: tuple[int, ...], z_shape: tuple[int, ...], weights: int
) -> None:
    bottleneck, h = Bottleneck(text, h_shape), torch.randn(3, *h_shape)
    z = bottleneck.squeeze(h)
    assert z.shape == (3, *z_shape)
    assert bottleneck.widen(z).shape == h.shape
    assert sum(parameter.numel() for parameter in bottleneck.squeeze.parameters()) == weights


@pytest.mark.parametrize("text", ["0", "x-16", "16-", "-16", "1x1-0", "1.5", "", "120-0", "1x1-"])
def test_what_is_no_bottleneck_is_said(text: str) -> None:
    with pytest.raises(UserError, match="--bottleneck must be none, or widths such as 16, 120-16 or 1x1-8"):
        parsed(text)


def test_convolutions_need_a_map() -> None:
    with pytest.raises(UserError, match="channels of a feature map"):
        Bottleneck("1x1-8", (40,))


# ---------------------------------------------------------------------- options, and the whole


class Shuffle(Penalty):
    strength: float = option(1.0, "how hard", least=0, below=5)
    often: int = option(3, "how often", least=1)
    kindly: bool = option(False, "whether kindly")
    way: str = option("left", "which way", choices=("left", "right"))

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        return self.strength * z.square().mean()


def test_options_are_declared_once_and_checked() -> None:
    assert Shuffle().record() == {"strength": 1.0, "often": 3, "kindly": False, "way": "left"}
    assert Shuffle(strength=2).record()["strength"] == 2.0
    assert isinstance(Shuffle(strength=2).strength, float)
    for given, says in (
        ({"strength": -1.0}, "--strength must be at least 0; got -1"),
        ({"strength": 5.0}, "--strength must be below 5; got 5"),
        ({"strength": math.nan}, "--strength must be a finite number"),
        ({"strength": "much"}, "--strength must be a number; got 'much'"),
        ({"often": 1.5}, "--often must be a whole number; got 1.5"),
        ({"often": True}, "--often must be a whole number; got True"),
        ({"way": "up"}, "--way must be one of left, right; got up"),
        ({"colour": 1}, "has no option colour"),
    ):
        with pytest.raises(UserError, match=says):
            Shuffle(**given)

    class Softly(Shuffle):
        softness: float = option(0.5, "how soft", above=0)

    assert list(Softly.options) == ["strength", "often", "kindly", "way", "softness"]
    assert "softness" not in Shuffle.options


def test_a_defence_is_its_three_parts() -> None:
    defence = Defence(
        (1, 28, 28), (16, 5, 5), 10, "compress", {}, "120-16", [{"name": "gaussian", "sigma": 1.0, "unit": "raw"}]
    )
    h = torch.randn(4, 16, 5, 5)
    z = defence.squeeze(h)
    assert z.shape == (4, 16)
    assert defence.release.is_random
    assert defence.sigma == 1
    assert defence.widen(defence.release(z)).shape == h.shape
    assert len(defence.trained_with_the_network()) == 6
    chain = Defence((1, 28, 28), (30,), 10, release=[{"name": "clip", "clip": 1.0}, {"name": "quantise", "bits": 2}])
    assert not chain.release.is_random
    assert chain.release(torch.randn(2, 30)).norm(dim=1).max() < 1.5
    plain = Defence((1, 28, 28), (30,), 10)
    z = torch.randn(2, 30)
    assert plain.release(plain.squeeze(z)) is z
    assert plain.widen(z) is z
    assert not [*plain.state_dict()]


# ---------------------------------------------------------------------- by name


def test_a_registry_answers_slips_and_refuses_what_is_taken() -> None:
    with pytest.raises(UserError, match=r"there is no release gausian; did you mean gaussian\?"):
        RELEASES["gausian"]
    registry: Registry[Penalty] = Registry("defence", Penalty)
    registry("mine")(Shuffle)
    with pytest.raises(ValueError, match="there is a defence mine already"):
        registry("mine")(type("Other", (Penalty,), {}))


def test_a_file_of_before_there_was_one_package_still_works(tmp_path: Path) -> None:
    file = tmp_path / "older.py"
    file.write_text(
        "from lightning_modules.defences import Release\n"
        "from options import option\n"
        "class Flip(Release):\n"
        "    times: int = option(1, 'how often', least=1)\n"
        "    def forward(self, z):\n"
        "        return -z\n"
    )
    assert RELEASES[f"{file}:Flip"](times=2).record() == {"times": 2}
    assert "options" not in sys.modules


def test_a_package_of_the_users_own_is_not_hidden_by_a_room_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.py").write_text("SCALE = 3\n")
    (tmp_path / "theirs.py").write_text(
        "from metrics import SCALE\n"
        "from sweetspot import Release\n"
        "class Times(Release):\n"
        "    def forward(self, z):\n"
        "        return SCALE * z\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    assert RELEASES[f"{tmp_path}/theirs.py:Times"]()(torch.ones(1)).item() == 3


def test_a_users_own_class_is_found_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from sweetspot import Release, option\n"
        "class Flip(Release):\n"
        "    times: int = option(1, 'how often', least=1)\n"
        "    def forward(self, z):\n"
        "        return -z\n"
        "class Plain: pass\n"
    )
    flip = RELEASES[f"{file}:Flip"]
    assert flip is RELEASES[f"{file}:Flip"], "one file is one class, however often it is named"
    assert flip(times=2).record() == {"times": 2}
    assert torch.equal(flip()(torch.ones(2)), -torch.ones(2))
    for name, says in (
        (f"{file}:Flap", "has no class Flap; did you mean Flip?"),
        (f"{file}:Plain", "is no release: it must be a subclass of Release"),
        (f"{tmp_path}/none.py:Flip", "there is no file"),
        (f"{file}", "names no class"),
    ):
        with pytest.raises(UserError, match=says):
            RELEASES[name]
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"cannot be run \(ZeroDivisionError: division by zero\)"):
        RELEASES[f"{broken}:Flip"]


# ---------------------------------------------------------------------- precision, channels


def test_precisions_are_those_of_numpy_and_give_no_digit_of_z_away() -> None:
    z = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0)) * 100
    half = torch.from_numpy(z.numpy().astype(np.float16).astype(np.float32))
    assert torch.equal(RELEASES["fp16"]()(z), half)
    bits = z.numpy().view(np.uint32).astype(np.uint64)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)  # ties to even
    assert torch.equal(RELEASES["bf16"]()(z), torch.from_numpy(nearest))
    sent = RELEASES["int8"]()(z)
    scale = z.abs().amax(dim=2, keepdim=True) / 127
    assert ((sent / scale) - (sent / scale).round()).abs().max() < 1e-4
    assert ((sent - z).abs() <= 0.5 * scale * (1 + 1e-5)).all()
    image = torch.randn(2, 3, 4, 4)
    assert len(RELEASES["int8"]()(image)[0].unique()) <= 255, "one scale for a whole feature map"


def test_a_channel_is_a_release() -> None:
    noise = channel_release("0.5", unit=4.0)
    assert isinstance(noise, Gaussian)
    assert (noise.sigma, noise.unit, noise.ramp) == (2.0, "raw", 0.0)
    assert type(channel_release("int8", unit=4.0)) is RELEASES["int8"]
    assert [channel_name(name) for name in ("fp32", "fp16", "1e-1")] == ["fp32", "fp16", "noise 0.1"]


def test_a_release_that_never_changed_anything_is_known() -> None:
    chain = Chain(Clip(clip=100.0), Quantise(bits=4))
    assert chain.idle() is None, "nobody has looked yet"
    z = torch.randn(4, 8)
    assert torch.equal(chain.watch(z), chain(z))
    assert isinstance(chain.idle(), Clip)
    chain.watch(1000 * z)
    assert chain.idle() is None
