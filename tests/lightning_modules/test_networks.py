"""Every network, at every cut: encoder ∘ head is the whole, and the papers' cuts are where they say."""

from __future__ import annotations

import pytest
import torch

from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks import NETWORKS, build_network
from sweetspot.lightning_modules.networks.split import Architecture, SplitNetwork

INPUTS: dict[str, list[tuple[int, ...]]] = {
    "lenet": [(1, 28, 28), (3, 28, 28), (1, 32, 32), (3, 32, 32)],
    "mlp": [(10,), (3,)],
}
INPUTS |= {name: [(3, 32, 32), (1, 32, 32)] for name in ("vgg16", "vgg16-bn")}
HEADS = {"mlp": ["default", "deeper", "wider"]}


def whole(architecture: Architecture, x: torch.Tensor) -> torch.Tensor:
    for layer in architecture.layers.values():
        x = layer.eval()(x)
    return x


@pytest.mark.parametrize(
    ("name", "shape", "head"),
    [(name, shape, head) for name in NETWORKS for shape in INPUTS[name] for head in HEADS.get(name, ["default"])],
    ids=str,
)
def test_encoder_and_head_equal_the_whole_for_every_cut(name: str, shape: tuple[int, ...], head: str) -> None:
    architecture = NETWORKS[name](shape, 7, head)
    x = torch.randn(2, *shape)
    expected = whole(architecture, x)
    assert expected.shape == (2, 7)
    for cut in [*range(1, len(architecture.blocks) + 1), *list(architecture.layers)[:-1]]:
        network = SplitNetwork(architecture, cut).eval()
        z = network.encoder(x)
        before = z.clone()
        assert torch.equal(network.head(z), expected), cut
        assert torch.equal(z, before), f"the head changed z in place at {cut}"
        assert torch.equal(network(x), expected), cut


@pytest.mark.parametrize(
    ("name", "shape", "cut_layer", "representation"),
    [
        ("lenet", (1, 28, 28), "pool2", (16, 5, 5)),
        ("lenet", (3, 32, 32), "pool2", (16, 5, 5)),
        ("vgg16", (3, 32, 32), "pool2", (128, 8, 8)),
        ("vgg16-bn", (3, 32, 32), "pool2", (128, 8, 8)),
        ("mlp", (10,), "fc2", (2,)),
    ],
)
def test_cut_2_is_where_the_paper_cuts(
    name: str, shape: tuple[int, ...], cut_layer: str, representation: tuple[int, ...]
) -> None:
    network = build_network(name, shape, 10, cut=2)
    assert network.cut_layer == cut_layer
    assert network.encoder(torch.zeros(1, *shape)).shape[1:] == representation


def test_the_encoder_standardises_its_images() -> None:
    pixels = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.25, 2.0]}
    plain = NETWORKS["lenet"]((3, 32, 32), 10, "default")
    x = torch.rand(2, 3, 32, 32)
    by_hand = torch.stack([(x[:, c] - pixels["mean"][c]) / pixels["std"][c] for c in range(3)], dim=1)
    assert torch.allclose(SplitNetwork(plain, 2, pixels)(x), SplitNetwork(plain, 2)(by_hand), atol=1e-5)


def test_vgg16_has_thirteen_convolutions() -> None:
    names = NETWORKS["vgg16"]((3, 32, 32), 10, "default").layers
    assert sum(name.startswith("conv") for name in names) == 13


@pytest.mark.parametrize("cut", [0, 99, -1, "conv9", "fc3", "2.5", ""])
def test_a_cut_that_is_not_there_is_refused(cut: int | str) -> None:
    with pytest.raises(UserError, match=r"cut must be a block from 1 to 4 or one of the layers conv1.*got"):
        build_network("lenet", (1, 28, 28), 10, cut)


@pytest.mark.parametrize(
    ("name", "shape", "head", "says"),
    [
        ("lenet", (1, 20, 20), "default", "28 or 32 px"),
        ("lenet", (2, 28, 28), "default", "1 or 3 channels"),
        ("lenet", (10,), "default", "--network mlp"),
        ("vgg16", (3, 28, 28), "default", "at least 32 px"),
        ("mlp", (1, 28, 28), "default", "takes vectors"),
        ("mlp", (10,), "huge", "head must be one of"),
        ("lenet", (1, 28, 28), "wider", "head must be default"),
        ("lenett", (1, 28, 28), "default", "did you mean lenet"),
        ("lenet", (1, 20, 20), "default", "No other network takes them; resize the data"),
        ("mlp", (3, 20, 40), "default", "No other network takes them; resize the data"),
        ("lenet", (3, 64, 64), "default", "Try --network vgg16 or vgg16-bn"),
        ("vgg16", (1, 28, 28), "default", "Try --network lenet"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, shape: tuple[int, ...], head: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        build_network(name, shape, 10, 2, head)
