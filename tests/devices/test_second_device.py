"""The battery catches what it is there for: every class of bug, put on purpose into copies of what we run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sweetspot.lightning_modules.defences.penalties.pairs import same_class
from sweetspot.lightning_modules.drawing import draws_from
from tests.devices.second_device import MixedDevicesError, SecondDevice, is_marked
from tests.devices.training import Steps, built


@pytest.fixture
def second() -> Iterator[SecondDevice]:
    with SecondDevice() as device:
        yield device


# ---------------------------------------------------------------------- copies with a bug in them


def ranks_counted_on_the_cpu(y: Tensor) -> Tensor:
    """`mixcon_pairs` with an arange that stays on the CPU."""
    same = same_class(y)
    rank = same.tril(-1).sum(dim=1)
    return rank.where(rank < same.sum(dim=1).min(), -1 - torch.arange(len(y)))


def indexed_by_the_cpu(z: Tensor) -> Tensor:
    """Representations in another order; a GPU does it, by copying the indices at every call."""
    return z[torch.arange(len(z)).flip(0)]


def written_at_places_of_the_cpu(z: Tensor) -> Tensor:
    z = z.clone()
    z[torch.tensor([0])] = 1.0
    return z


def noise_of_another_generator(z: Tensor) -> Tensor:
    return z + torch.randn(z.shape, generator=torch.Generator().manual_seed(0), device=z.device)


def filled_by_another_generator(z: Tensor) -> Tensor:
    return torch.empty_like(z).normal_(generator=torch.Generator().manual_seed(0))


def noise_of_the_cpu(z: Tensor) -> Tensor:
    return z + torch.randn(z.shape, generator=torch.Generator(device=z.device).manual_seed(0))


def noise_left_on_the_cpu(z: Tensor) -> Tensor:
    return z + torch.randn(z.shape)


def joined_with_the_cpu(z: Tensor) -> Tensor:
    return torch.cat([z, torch.ones(len(z), 1)], dim=1)


def given_to_numpy(z: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(z))


def summed_up_on_the_cpu(z: Tensor) -> Tensor:
    total = torch.zeros(())
    total += z.sum()
    return total


BUGS: list[Callable[[Tensor], Tensor]] = [
    indexed_by_the_cpu,
    written_at_places_of_the_cpu,
    noise_of_another_generator,
    filled_by_another_generator,
    noise_of_the_cpu,
    noise_left_on_the_cpu,
    joined_with_the_cpu,
    given_to_numpy,
    summed_up_on_the_cpu,
]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_caught(bug: Callable[[Tensor], Tensor], second: SecondDevice) -> None:
    z = torch.rand(4, 3)
    if bug is not noise_of_the_cpu:
        bug(z)  # on one device it is none
    with pytest.raises(MixedDevicesError, match=r"test_second_device\.py"):
        bug(z.to(second.device))


def test_a_bug_in_a_copy_of_ours_is_caught(second: SecondDevice) -> None:
    y = torch.tensor([0, 1, 0, 1])
    ranks_counted_on_the_cpu(y)
    with pytest.raises(MixedDevicesError, match="ranks_counted_on_the_cpu"):
        ranks_counted_on_the_cpu(y.to(second.device))


def test_a_bug_in_a_backward_pass_is_caught(second: SecondDevice) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return gradients[0] * held

    held = torch.full((3,), 2.0)
    x = torch.rand(3).to(second.device).requires_grad_()
    with pytest.raises(MixedDevicesError):
        Doubled.apply(x).sum().backward()


def test_a_buffer_left_behind_is_caught(second: SecondDevice, tmp_path: Path) -> None:
    """One that is a plain attribute does not move with its module."""
    module = built("lenet", tmp_path, defence="compress", release=[{"name": "gaussian", "unit": "raw"}])
    broken = copy.deepcopy(module)
    centres = broken.defence.penalty.centres
    del broken.defence.penalty._buffers["centres"]
    broken.defence.penalty.centres = centres
    Steps(module, second.device).take(0)
    steps = Steps(broken, second.device)
    with pytest.raises(MixedDevicesError, match=r"compress\.py"):
        steps.take(0)


def test_a_module_that_stayed_is_caught(second: SecondDevice) -> None:
    layer = nn.Linear(3, 2)
    x = torch.rand(4, 3).to(second.device)
    with pytest.raises(MixedDevicesError):
        layer(x)
    assert layer.to(second.device)(x).device == second.device


@pytest.mark.parametrize(
    "wait",
    [
        lambda z: z.sum().item(),
        lambda z: bool((z > 2).any()),
        lambda z: float(z[0, 0]),
        lambda z: z.tolist(),
        lambda z: z.cpu(),
        lambda z: z.to("cpu"),
        lambda z: z[z > 0.5],
        lambda z: (z > 0.5).nonzero(),
        lambda z: z.long().unique(),
        lambda z: torch.bincount(z.long().flatten()),
        lambda z: torch.equal(z, z),
        lambda z: torch.masked_select(z, z > 0.5),
        lambda z: z.repeat_interleave(torch.ones(len(z), device=z.device, dtype=torch.long), dim=0),
        lambda z: torch.tensor([1.0, 2.0], device=z.device),
        lambda z: torch.rand(3).to(z.device),
        lambda z: z.clone().copy_(torch.rand(4, 3)),
        lambda z: torch.linalg.inv(z[:3]),
        lambda z: torch.cuda.synchronize(),
    ],
)
def test_a_wait_is_counted(wait: Callable[[Tensor], object], second: SecondDevice) -> None:
    z = torch.rand(4, 3).to(second.device)
    with second.watched() as waits:
        wait(z)
    assert waits
    assert all(each.where.startswith("tests/devices/test_second_device.py") for each in waits)


def test_what_a_gpu_does_by_itself_is_let_through(second: SecondDevice) -> None:
    layer, device = nn.Linear(3, 2), second.device
    weight = layer.weight
    layer.to(device)
    assert layer.weight is weight, "a module keeps its parameters when it moves, so that shared ones stay shared"
    optimisers = [torch.optim.Adam(layer.parameters(), fused=True), torch.optim.SGD(layer.parameters(), momentum=0.9)]
    with second.watched() as waits:
        x = torch.rand(4, 3, device=device, generator=torch.Generator(device=device).manual_seed(0))
        x = (x * torch.tensor(2.0) + 1).clamp_min(0) + torch.arange(3, device=x.device)
        x = torch.where(x > 1, x, 0.0)
        x[x > 2] = 0.0  # that is a masked fill
        later = torch.rand(4, 2).to(device, non_blocking=True)
        loss = F.mse_loss(layer(x), later) + x.new_zeros(()) + torch.zeros_like(x).sum()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
    assert not waits, waits
    kept = [value for each in optimisers for state in each.state.values() for value in state.values()]
    assert all(is_marked(each) for each in kept if isinstance(each, Tensor))
    assert is_marked(copy.deepcopy(layer).weight)
    assert layer.weight.grad is not None
    assert is_marked(layer.weight.grad)


def test_a_gradient_travels_back(second: SecondDevice) -> None:
    x = torch.rand(3, requires_grad=True)
    x.to(second.device).square().sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cpu"
    assert torch.equal(x.grad, 2 * x)


def test_the_numbers_are_those_of_the_cpu(second: SecondDevice, tmp_path: Path) -> None:
    losses = []
    for device in ("cpu", second.device):
        torch.manual_seed(0)
        steps = Steps(built("lenet", tmp_path, defence="mixcon"), device)
        losses.append([steps.take(number).item() for number in range(2)])
    assert losses[0] == losses[1]


def test_draws_repeat_there(second: SecondDevice) -> None:
    found = []
    for _ in range(2):
        with draws_from(3, second.device):
            found.append(torch.rand(4, device=second.device))
    assert torch.equal(*found)


def test_nothing_stays_when_it_ends() -> None:
    before = torch.Generator, torch.cuda.is_available, torch._C._nn._parse_to
    with SecondDevice() as second:
        x = torch.rand(2).to(second.device)
    assert (torch.Generator, torch.cuda.is_available, torch._C._nn._parse_to) == before
    assert (x + torch.rand(2)).device.type == "cpu"
