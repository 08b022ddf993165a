"""Any model, any cut: encoder ∘ head is the model to the last bit, by its graph and by running it."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision import models

import sweetspot
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.splitting import (
    possible_cuts,
    split,
    split_by_running,
    split_by_tracing,
)

Way = Callable[..., tuple[nn.Module, nn.Module]]
WAYS: list[Way] = [split_by_tracing, split_by_running, split]


class LeNet(nn.Module):
    """LeNet5 as most people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        logits: Tensor = self.fc3(x)
        return logits


class Branches(nn.Module):
    """Two branches, functional ReLUs, one in place, a parameter of its own, and a batch size taken at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Conv2d(8, 8, 1),
        )
        self.norm, self.drop, self.fc = nn.BatchNorm2d(8), nn.Dropout(0.3), nn.Linear(8 * 8 * 8, 5)
        self.scale = nn.Parameter(torch.rand(8, 1, 1))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[0]
        y = F.relu(self.stem(x)) * self.scale
        left, right = self.norm(self.left(y)), self.right(y)
        torch.relu_(right)  # nobody takes what comes back
        y = F.max_pool2d(self.drop((left + right).relu()), 2)
        logits: Tensor = self.fc(y.view(count, -1) * self.scale.mean())
        return logits


class Untraceable(nn.Module):
    """Looks at its input, and drops out by a function: its graph is not the same in training."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.rand(1, 4))
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 6))
        self.top = nn.Linear(6, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        assert bool(x.shape[1] == 4)
        assert len(x) > 0
        x = self.relu(x * 2 - self.token)
        x = self.relu(F.dropout(self.body(x), 0.2, self.training))
        logits: Tensor = self.top(x)
        return logits


@functools.cache
def make(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A model with random weights, and the shape of its inputs."""
    torch.manual_seed(0)
    if name in ("resnet18", "mobilenet_v3_small", "vgg11_bn"):
        return models.get_model(name, num_classes=7), (3, 32, 32)
    if name == "vit_b_16":
        return models.vit_b_16(image_size=64, num_classes=7), (3, 64, 64)
    return {"lenet": LeNet, "branches": Branches, "untraceable": Untraceable}[name](), {
        "lenet": (1, 28, 28), "branches": (3, 16, 16), "untraceable": (4,)
    }[name]  # fmt: skip


CUTS = [
    ("lenet", "conv1"), ("lenet", "conv2"), ("lenet", "fc1"), ("vgg11_bn", "features.5"),
    ("resnet18", "layer1"), ("resnet18", "bn1"), ("resnet18", "layer2.0"), ("mobilenet_v3_small", "features.4"),
    ("mobilenet_v3_small", "classifier.0"), ("vit_b_16", "encoder.layers.encoder_layer_3"), ("branches", "drop"),
    ("branches", "stem"),
]  # fmt: skip


@torch.no_grad()
def check_equal(model: nn.Module, encoder: nn.Module, head: nn.Module, shape: tuple[int, ...]) -> None:
    """Both parts give what the model gives, bit by bit: at other batch sizes, in evaluation and in training."""
    for count in (1, 5):
        x = torch.rand(count, *shape)
        z = encoder.eval()(x)
        before = z.clone()
        assert torch.equal(head.eval()(z), model.eval()(x))
        assert torch.equal(z, before), "the head changed z in place"
    kept = [each.clone() for each in model.buffers()]
    torch.manual_seed(1)
    logits = head.train()(encoder.train()(x))
    after = [each.clone() for each in model.buffers()]
    for each, was in zip(model.buffers(), kept, strict=True):
        each.copy_(was)
    torch.manual_seed(1)
    assert torch.equal(logits, model.train()(x)), "in training"
    assert all(map(torch.equal, after, model.buffers())), "batch norm has learnt once"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("name", "cut"), CUTS)
def test_both_parts_are_the_model_to_the_last_bit(name: str, cut: str, way: Way) -> None:
    model, shape = make(name)
    encoder, head = way(model, cut, torch.rand(2, *shape))
    check_equal(model, encoder, head, shape)
    client, server = ({id(each) for each in part.parameters()} for part in (encoder, head))
    shared = client & server
    assert shared == ({id(model.scale)} if (name, cut) == ("branches", "drop") else set())
    used = {id(each) for part, each in model.named_parameters() if not part.startswith("unused")}
    assert client | server == used
    names = set(model.state_dict())
    for part in (encoder, head):
        assert {key.removeprefix("model.") for key in part.state_dict()} < names


def test_without_an_example_a_graph_is_enough() -> None:
    model, shape = make("vit_b_16")
    encoder, head = sweetspot.split(model, "encoder.layers.encoder_layer_3")
    check_equal(model, encoder, head, shape)


@pytest.mark.parametrize("cut", ["body", "body.1", "body.0"])
def test_what_torch_fx_cannot_follow_is_cut_by_running_it(cut: str) -> None:
    model, shape = make("untraceable")
    with pytest.raises(UserError, match="give some inputs"):
        split(model, cut)
    model.eval()
    encoder, head = split(model, cut, torch.rand(2, *shape))
    assert not model.training
    check_equal(model, encoder, head, shape)
    assert not {*encoder.parameters()} & {*head.parameters()}
    assert len([*encoder.parameters(), *head.parameters()]) == len([*model.parameters()])


@pytest.mark.parametrize("way", [split_by_tracing, split_by_running])
def test_parts_are_copied_pickled_and_moved(way: Way) -> None:
    model, shape = make("branches")
    x = torch.rand(3, *shape)
    encoder, head = (part.eval() for part in way(model, "stem", x))
    expected = head(encoder(x))
    for other, another in (copy.deepcopy((encoder, head)), pickle.loads(pickle.dumps((encoder, head)))):
        assert not other.training
        assert torch.equal(another(other(x)), expected)
        other.double()
        another.double()
        assert another(other(x.double())).dtype == torch.float64
    assert encoder(x).dtype == torch.float32
    meta = copy.deepcopy(encoder).to("meta")(x.to("meta"))
    assert meta.device.type == "meta"


@pytest.mark.parametrize("way", [split_by_tracing, split_by_running])
def test_gradients_reach_every_weight(way: Way) -> None:
    model, shape = make("branches")
    x = torch.rand(4, *shape)
    encoder, head = (part.eval() for part in way(model, "drop", x))
    model.zero_grad()
    head(encoder(x)).square().sum().backward()
    found = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    model.eval()(x).square().sum().backward()
    for name, each in model.named_parameters():
        assert each.grad is None or torch.allclose(found[name], each.grad, rtol=1e-4, atol=1e-6), name


class Tied(nn.Module):
    """Uses the same weights on both sides of `middle`, and a submodule twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.middle = nn.Linear(4, 4), nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 1)
        self.idle = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.shared(x))
        x, _ = self.attention(x, x, x)
        x = self.shared(x)
        return F.linear(x, self.shared.weight)


def test_weights_of_both_sides_stay_one() -> None:
    model = Tied()
    encoder, head = split(model, "middle", torch.rand(2, 4))
    assert encoder.get_parameter("shared.weight") is head.get_parameter("shared.weight") is model.shared.weight
    check_equal(model, encoder, head, (4,))


class Returns(nn.Module):
    """A model that returns whatever is made of its logits."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.wrap = nn.Linear(4, 4), wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.layer(x))


@pytest.mark.parametrize(
    ("model", "cut", "says"),
    [
        ("resnet18", "layer9", r"ResNet has no submodule layer9 .*did you mean layer"),
        ("resnet18", "layer1.0.bn1", r"2 tensors cross there, its output and maxpool; .*places: maxpool and layer1\.0"),
        ("resnet18", "layer1.0.relu", "it is called 2 times"),
        ("resnet18", "fc", "nothing is left for the server. Nearest places: "),
        ("resnet18", "", "has no submodule"),
        ("branches", "norm", r"2 tensors cross there, its output and mul; .*places: stem and drop"),
        ("branches", "unused", "it is never called"),
        (Tied(), "shared", "it is called 2 times"),
        (Tied(), "idle", "it is never called"),
        (Tied(), "attention", "it returns a tuple"),
        (Returns(lambda y: (y, y)), "layer", "returns a tuple; it must return one tensor"),
        (Returns(lambda y: {"out": y}), "layer", "returns a dict; it must return one tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_cut_that_cannot_be_is_refused_in_one_line(model: str | nn.Module, cut: str, says: str) -> None:
    made, shape = make(model) if isinstance(model, str) else (model, (4,))
    with pytest.raises(UserError, match=says) as refused:
        split(made, cut, torch.rand(2, *shape))
    assert "\n" not in str(refused.value)


def test_a_shape_that_a_model_does_not_take_is_refused() -> None:
    with pytest.raises(UserError, match="LeNet does not take inputs of 3×28×28"):
        split(LeNet(), "conv1", torch.rand(2, 3, 28, 28))


@pytest.mark.parametrize("way", [split_by_tracing, split_by_running])
def test_a_skip_connection_around_the_cut_is_found_both_ways(way: Way) -> None:
    model, shape = make("resnet18")
    with pytest.raises(UserError, match=r"2 tensors cross there, its output and maxpool"):
        way(model, "layer1.0.conv2", torch.rand(2, *shape))


@pytest.mark.parametrize("name", ["resnet18", "branches", "untraceable", "lenet"])
def test_every_possible_cut_can_be_made_and_its_figures_are_right(name: str) -> None:
    model, shape = make(name)
    found = possible_cuts(model, shape)
    assert [place.macs for place in found] == sorted(place.macs for place in found)
    for place in found:
        encoder, _ = split(model, place.name, torch.rand(2, *shape))
        assert encoder.eval()(torch.rand(2, *shape)).shape[1:] == place.shape
        weights = sum(each.numel() for each in encoder.parameters())
        assert place.parameters == pytest.approx(weights / sum(each.numel() for each in model.parameters()))
    expected = {
        "resnet18": ["conv1", "bn1", "relu", "maxpool", "layer1.0", "layer1", "layer2.0", "layer2", "layer3.0",
                     "layer3", "layer4.0", "layer4", "avgpool"],
        "branches": ["stem", "drop"],
        "untraceable": ["body.0", "body.1", "body.2", "body"],
        "lenet": ["conv1", "conv2", "fc1", "fc2"],
    }  # fmt: skip
    assert [place.name for place in found] == expected[name]


def test_the_clients_share_of_multiply_adds_is_counted_by_hand() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2))
    found = {place.name: place for place in possible_cuts(model, (8,))}
    assert found["0"].macs == found["1"].macs == pytest.approx(32 / 44)
    assert found["2"].macs == pytest.approx(40 / 44)
    assert found["0"].parameters == pytest.approx(36 / 52)


def test_attention_is_counted() -> None:
    model, shape = make("vit_b_16")
    layers = [place for place in possible_cuts(model, shape) if "encoder_layer" in place.name]
    steps = {round(b.macs - a.macs, 6) for a, b in itertools.pairwise(layers)}
    tokens, width = 17, 768
    block = tokens * 12 * width**2 + 2 * tokens**2 * width
    total = 16 * 768 * width + 12 * block + 7 * width
    assert steps == {round(block / total, 6)}
