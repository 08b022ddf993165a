"""Decoders: any shapes, the losses of the paper, the better one on held-out data, trained once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics.functional.image import structural_similarity_index_measure

import sweetspot.attacks.decoder.attack as decoder_attack
import sweetspot.attacks.decoder.training as training
from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.decoder import Decoder
from sweetspot.attacks.decoder.networks import Discriminator, InverseNetwork
from sweetspot.attacks.decoder.training import (
    DecoderModule,
    GanModule,
    InverseModule,
    inverse_loss,
    random_batches,
    representations,
    train_decoder,
)
from sweetspot.errors import UserError
from sweetspot.files import read_tensors, save_tensors
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.ssim import structural_dissimilarity
from tests.weak_attacks import shrink_decoders

SHAPES = [
    ((16, 5, 5), (1, 28, 28)),  # LeNet after the 2nd block
    ((6, 28, 28), (1, 28, 28)),  # LeNet after conv1
    ((16, 5, 5), (3, 32, 32)),
    ((128, 8, 8), (3, 32, 32)),  # VGG16 after the 2nd block
    ((512, 1, 1), (3, 32, 32)),  # VGG16 after the 5th
    ((400,), (1, 28, 28)),  # a flat cut
    ((7, 3, 5), (2, 30, 18)),
    ((2,), (10,)),  # vectors
]


@pytest.fixture
def data() -> AttackerData:
    return AttackerData(squares(200, seed=0), torch.zeros(200, dtype=torch.long))


def squares(count: int, seed: int) -> Tensor:
    """Bright squares on black: an image is where its square is."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(count, 1, 28, 28)
    for image, (i, j) in zip(x, torch.randint(2, 18, (count, 2), generator=generator).tolist(), strict=True):
        image[:, i : i + 8, j : j + 8] = 1.0
    return x


@pytest.fixture
def victim() -> Victim:
    torch.manual_seed(0)
    return Victim.from_module(SplitModule("lenet", [1, 28, 28], 2))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_decoders(monkeypatch)


@pytest.mark.parametrize(("z_shape", "x_shape"), SHAPES, ids=str)
@pytest.mark.parametrize("steadied", [False, True])
def test_the_architecture_follows_from_the_shapes(
    z_shape: tuple[int, ...], x_shape: tuple[int, ...], steadied: bool
) -> None:
    network = InverseNetwork(z_shape, x_shape, steadied)
    recovered = network(torch.randn(3, *z_shape))
    assert recovered.shape == (3, *x_shape)
    assert Discriminator(x_shape)(recovered).shape == (3,)
    recovered.sum().backward()
    assert all(weight.grad is not None for weight in network.parameters()), "every layer learns"


def test_features_are_standardised_by_what_was_learned() -> None:
    network = InverseNetwork((3,), (2,))
    z = torch.tensor([[0.0, 5.0, -1.0], [2.0, 5.0, 1.0]])
    network.learn_scale(z)
    assert torch.equal(network.mean, torch.tensor([1.0, 5.0, 0.0]))
    assert network.std[1] > 0, "a feature that never moves does not divide by zero"
    assert network(1000 * z).isfinite().all()


def test_the_dissimilarity_is_one_minus_ssim() -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.rand(2, 4, 3, 24, 20, generator=generator)
    for recovered in (x, 0.7 * x + 0.3 * noise, noise):
        whole = structural_similarity_index_measure(recovered, x, data_range=1.0, return_full_image=True)
        full = whole[1]  # torchmetrics pads, so only where the window fits do both see the same
        assert structural_dissimilarity(recovered, x).item() == pytest.approx(
            1 - full[..., 5:-5, 5:-5].mean().item(), abs=1e-4
        )
    small = torch.rand(1, 1, 12, 12, dtype=torch.float64, requires_grad=True)
    other = torch.rand(1, 1, 12, 12, dtype=torch.float64)
    assert torch.autograd.gradcheck(structural_dissimilarity, (small, other))


def test_vectors_and_tiny_images_have_a_loss_too() -> None:
    assert inverse_loss(torch.zeros(2, 3), torch.ones(2, 3)).item() == 1
    assert inverse_loss(torch.zeros(2, 1, 8, 8), torch.ones(2, 1, 8, 8)).item() == 1, "too small for SSIM: ℓ1 alone"


def test_the_gan_loss_is_equation_7(victim: Victim, data: AttackerData) -> None:
    module = GanModule(victim, InverseNetwork((16, 5, 5), (1, 28, 28)))
    x = data.images(slice(0, 5))
    z = victim.encoder(x)
    recovered = module.network(z)
    true, false = module.discriminator(x).sigmoid(), module.discriminator(recovered).sigmoid()
    expected = -(true.log() + (1 - false).log()).mean()
    assert torch.allclose(module.discriminator_loss(x, recovered), expected, atol=1e-5)
    consistent = (z - victim.encoder(recovered)).abs().mean()
    expected = -false.log().mean() + 10 * (x - recovered).abs().mean() + 10 * consistent
    loss = module.network_loss(x, z, recovered)
    assert torch.allclose(loss, expected, atol=1e-5)
    loss.backward()
    assert module.network.layers[1].weight.grad is not None
    assert all(weight.grad is None for weight in victim.encoder.parameters()), "the victim does not learn"


@pytest.mark.parametrize(
    ("recipe", "kind"), [pytest.param("paper", "gan", marks=pytest.mark.slow), ("adaptive", "inverse")]
)
def test_a_decoder_learns_to_invert(
    recipe: str, kind: str, victim: Victim, data: AttackerData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 60)
    if kind == "inverse":  # a GAN that is small learns too little
        shrink_decoders(monkeypatch)
    attack = Decoder(recipe, "fast", decoder_epochs=60)
    attack.prepare(victim, data)
    new = squares(20, seed=1)
    reconstruction = attack.reconstruct(victim, victim.encoder(new))
    assert reconstruction.trace["network"] == kind
    blank = (data.x.mean(dim=0) - new).abs().mean()
    assert (reconstruction.x - new).abs().mean() < 0.5 * blank
    assert (reconstruction.x.min() >= 0) & (reconstruction.x.max() <= 1)


@pytest.mark.parametrize("kind", [InverseModule, GanModule])
def test_the_encoder_sees_each_input_once_and_the_release_draws_every_time(
    kind: type[InverseModule | GanModule], victim: Victim, data: AttackerData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(held: int) -> dict[str, Tensor]:
        monkeypatch.setattr(training, "HELD", held)
        torch.manual_seed(0)
        network = InverseNetwork((16, 5, 5), (1, 28, 28))
        module = InverseModule(noisy, network, 6) if kind is InverseModule else GanModule(noisy, network)
        drawn.clear()
        seen.clear()
        train_decoder(module, noisy, random_batches(200, 6, torch.Generator().manual_seed(0)), data, "decoder")
        return network.state_dict()

    def release(z: Tensor) -> Tensor:
        drawn.append(torch.randn(z.shape, generator=torch.Generator().manual_seed(len(drawn))))
        return z + drawn[-1]

    drawn: list[Tensor] = []
    seen: list[int] = []
    noisy = dataclasses.replace(victim, release=release)
    noisy.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    anew, asked_anew = trained(held=0), sum(seen)
    held, draws = trained(held=2**30), len(drawn)
    for name, weight in anew.items():
        torch.testing.assert_close(held[name], weight, rtol=1e-4, atol=1e-5)
    passes = 2 if kind is GanModule else 1  # the GAN looks at what it makes, too
    assert draws == 6 * passes
    assert asked_anew == 2 * 128 + 6 * 128 * passes, "with two looks at whether the encoder draws at random"
    assert sum(seen) == 2 * 128 + 200 + 6 * 128 * (passes - 1)


def test_an_encoder_that_draws_at_random_is_asked_every_time(victim: Victim, data: AttackerData) -> None:
    random = dataclasses.replace(victim, encoder=nn.Sequential(victim.encoder, nn.Dropout()).train())
    assert representations(random, data, "decoder") is None
    held = representations(victim, data, "decoder")
    assert held is not None
    torch.testing.assert_close(held, victim.encoder(data.x))


@pytest.mark.usefixtures("small")
def test_the_better_one_on_held_out_data_is_used(
    victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 1)
    trained_on: list[Tensor] = []

    def spied(module: DecoderModule, victim: Victim, batches: list[Tensor], own: AttackerData, *given: Any) -> None:
        trained_on.append(own.x)
        train_decoder(module, victim, batches, own, *given)

    monkeypatch.setattr(decoder_attack, "train_decoder", spied)
    Decoder("paper", "fast", cache=tmp_path, decoder_epochs=5).prepare(victim, data)
    attack = Decoder("adaptive", "fast", cache=tmp_path, decoder_epochs=5)
    assert attack.kinds == ["inverse", "gan"], "a trained GAN that is there is considered"
    attack.prepare(victim, data)
    assert attack.held_out["gan"] < attack.held_out["inverse"]
    assert attack.reconstruct(victim, victim.encoder(data.x[:2])).trace["network"] == "gan"
    assert [len(own) for own in trained_on] == [180, 180], "a tenth is held out"


@pytest.mark.usefixtures("small")
def test_a_trained_decoder_is_kept_and_a_broken_file_is_trained_anew(
    victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 3)
    z = victim.encoder(data.x[:4])
    first = Decoder("adaptive", "fast", cache=tmp_path)
    first.prepare(victim, data)
    (file,) = tmp_path.glob("decoder-inverse-*.pt")
    with monkeypatch.context() as patched:
        patched.setattr(decoder_attack, "train_decoder", None)  # whoever trains again fails
        again = Decoder("adaptive", "fast", cache=tmp_path)
        again.prepare(victim, data)
    assert torch.equal(first.reconstruct(victim, z).x, again.reconstruct(victim, z).x)
    file.write_bytes(file.read_bytes()[:1000])
    anew = Decoder("adaptive", "fast", cache=tmp_path)
    anew.prepare(victim, data)
    assert torch.equal(first.reconstruct(victim, z).x, anew.reconstruct(victim, z).x), "same seed, same decoder"
    other = AttackerData(data.x.flip(0), data.y)
    Decoder("adaptive", "fast", cache=tmp_path).prepare(victim, other)
    assert len(list(tmp_path.glob("decoder-inverse-*.pt"))) == 2, "other data, another decoder"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["inverse", "gan"])
def test_a_training_that_was_stopped_goes_on_to_the_same_decoder(
    kind: str, victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(cache: Path) -> None:
        torch.manual_seed(0)  # every start of a command begins its draws anew
        Decoder("paper" if kind == "gan" else "adaptive", "fast", cache=cache, decoder_epochs=15).prepare(noisy, data)

    def release(z: Tensor) -> Tensor:
        drawn.append(z)
        if len(drawn) == stop_at:
            raise KeyboardInterrupt
        return z + torch.randn_like(z)

    drawn: list[Tensor] = []
    stop_at = 0
    noisy = dataclasses.replace(victim, release=release)
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 15)
    monkeypatch.setattr("sweetspot.attacks.decoder.unfinished.EVERY", 0.0)
    folders = [tmp_path / "through", tmp_path / "stopped"]
    for folder in folders:
        folder.mkdir()
    prepare(folders[0])
    stop_at, whole = 2 * len(drawn) // 3, len(drawn)
    drawn.clear()
    with pytest.raises(KeyboardInterrupt):
        prepare(folders[1])
    assert [file.suffix for file in folders[1].iterdir()] == [".unfinished"]
    stop_at = 0
    drawn.clear()
    prepare(folders[1])
    assert len(drawn) < 0.7 * whole, "what was trained is not trained again"
    (through,), (stopped,) = (list(folder.iterdir()) for folder in folders)
    assert through.name == stopped.name, "nothing unfinished is left"
    weights, again = read_tensors(through), read_tensors(stopped)
    assert all(torch.equal(weights[name], again[name]) for name in weights)


@pytest.mark.usefixtures("small")
def test_a_damaged_unfinished_training_begins_anew(
    victim: Victim, data: AttackerData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decoder_attack.STEPS, "fast", 3)
    z = victim.encoder(data.x[:4])
    first = Decoder("adaptive", "fast", cache=tmp_path)
    first.prepare(victim, data)
    (file,) = tmp_path.iterdir()
    for content in (b"damaged", b""):
        file.unlink()
        file.with_suffix(".unfinished").write_bytes(content)
        again = Decoder("adaptive", "fast", cache=tmp_path)
        again.prepare(victim, data)
        assert torch.equal(first.reconstruct(victim, z).x, again.reconstruct(victim, z).x)
    save_tensors(file.with_suffix(".unfinished"), {"step": 2, "module": {"weight": torch.zeros(1)}})
    file.unlink()
    Decoder("adaptive", "fast", cache=tmp_path).prepare(victim, data)
    assert list(tmp_path.iterdir()) == [file], "another network's state is not taken"


def test_batches_use_every_input_before_any_comes_again() -> None:
    batches = random_batches(300, 5, torch.Generator().manual_seed(0))
    assert [len(batch) for batch in batches] == [128] * 5
    assert len(torch.cat(batches[:2]).unique()) == 256
    assert [len(batch) for batch in random_batches(7, 3, torch.Generator())] == [7] * 3


def test_what_cannot_work_is_refused(victim: Victim) -> None:
    with pytest.raises(UserError, match="needs inputs of the attacker's own"):
        Decoder().prepare(victim, None)
    with pytest.raises(UserError, match="must be prepared"):
        Decoder().reconstruct(victim, torch.zeros(1, 16, 5, 5))
    for recipe, budget, epochs in (("kind", "fast", 1), ("paper", "endless", 1), ("paper", "fast", 0)):
        with pytest.raises(UserError):
            Decoder(recipe, budget, decoder_epochs=epochs)
