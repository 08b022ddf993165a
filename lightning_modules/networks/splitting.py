"""Any model, cut at the output of one of its submodules: what comes before is the client's, what follows the server's.

encoder, head = split(torchvision.models.resnet18(), "layer1")
logits = head(encoder(x))                                          # the model's own, to the last bit
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sweetspot.errors import UserError, first_line
from sweetspot.lightning_modules.networks.counting import counting, modes_kept, multiply_adds
from sweetspot.lightning_modules.networks.running import Watched
from sweetspot.lightning_modules.networks.tracing import BATCHES, Traced, batch_of, constants_removed, traced

NEAR = 3  # names or places that an error offers
Parts = tuple[nn.Module, nn.Module]


class CutError(UserError):
    """A model cannot be cut where it was asked for."""


@dataclass(frozen=True)
class Place:
    """Somewhere that a model can be cut.

    Args:
        name: of the submodule.
        shape: of z for one input.
        macs: the client's share of the multiply-adds, in [0, 1].
        parameters: the client's share of the parameters.
    """

    name: str
    shape: tuple[int, ...]
    macs: float
    parameters: float


def split(model: nn.Module, cut: str, example: Tensor | None = None) -> Parts:
    """The client's and the server's part of a model; both share its weights, under its own names.

    Args:
        model: takes one tensor and returns one.
        cut: the submodule whose output is sent, such as `layer1` or `features.4`.
        example: some inputs (B, …). With them both parts are compared with the model, bit by bit, and a model that
            torch.fx cannot trace is cut by running it.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> encoder, head = split(model, "1")
        >>> torch.equal(head(encoder(torch.ones(1, 4))), model(torch.ones(1, 4)))
        True
    """
    name = submodule_name(model, cut)
    if example is not None:
        example = example.to(device_of(model))
        outputs(model, example)
    with constants_removed(model):
        graph = traced(model, example)
        if graph is not None and graph.count(name):
            check_place(graph, name)
            parts = graph.parts(name)
            if example is None or agree(model, parts, example):
                return parts
    if example is None:
        raise CutError(
            f"{name} of {type(model).__name__} is never called, as far as torch.fx can follow it; "
            f"give some inputs: split(model, {name!r}, example)"
        )
    return split_by_running(model, name, example)


def split_by_tracing(model: nn.Module, cut: str, example: Tensor | None = None) -> Parts:
    """`split` by the model's graph, or not at all."""
    name = submodule_name(model, cut)
    with constants_removed(model):
        graph = traced(model, example)
        if graph is None:
            raise CutError(f"{type(model).__name__} cannot be traced")
        check_place(graph, name)
        return graph.parts(name)


def split_by_running(model: nn.Module, cut: str, example: Tensor) -> Parts:
    """`split` by running the model until the cut, and with z in the submodule's place."""
    name = submodule_name(model, cut)
    with undisturbed(model):
        watched = Watched(model, batch_of(example, BATCHES[0]))
        check_place(watched, name)
        try:
            parts = watched.parts(name)
            agreed = agree(model, parts, example)
        except Exception as error:  # whatever a model does that is not in its submodules
            raise CutError(
                f"{type(model).__name__} cannot be cut at {name}: its part alone does not run ({first_line(error)})"
            ) from error
    if not agreed:
        raise CutError(
            f"{type(model).__name__} cannot be cut at {name}: what follows needs more than its output"
            f"{offered(watched, name)}"
        )
    return parts


def possible_cuts(model: nn.Module, shape: tuple[int, ...]) -> list[Place]:
    """Every place where exactly one tensor crosses, in the order that the model runs; of equal places the outermost.

    Args:
        model: takes one tensor and returns one.
        shape: of one input.
    """
    example = torch.rand(BATCHES[0], *shape, generator=torch.Generator().manual_seed(0)).to(device_of(model))
    outputs(model, example)
    macs: dict[str, int] = {}
    with undisturbed(model), constants_removed(model):
        ways = ways_to_cut(model, example)
        seen = Watched(model, example)
        with counting() as counter, torch.no_grad():
            handles = [
                module.register_forward_hook(lambda *_, name=name: macs.update({name: multiply_adds(counter)}))
                for name, module in model.named_modules()
            ]
            try:
                model.eval()(example)
            finally:
                for handle in handles:
                    handle.remove()
        total, weights = macs[""], sum(each.numel() for each in model.parameters())
        return [
            Place(
                name,
                tuple(seen.call(name).output.shape[1:]),
                macs[name] / max(total, 1),
                sum(each.numel() for each in ways.client_parameters(name)) / max(weights, 1),
            )
            for name in places(ways)
            if seen.count(name) == 1
        ]


def ways_to_cut(model: nn.Module, example: Tensor) -> Traced | Watched:
    """The model's graph, or a forward pass of it where it has none."""
    graph = traced(model, example)
    return Watched(model, example) if graph is None or not places(graph) else graph


def places(ways: Traced | Watched) -> list[str]:
    """The submodules at whose output exactly one tensor crosses, in the order that they run; equal ones once."""
    known = [name for name in names_called(ways) if name and not obstacle(ways, name)]
    found: dict[Any, str] = {}
    for name in sorted(known, key=lambda name: name.count(".")):
        found.setdefault(ways.place(name), name)
    return sorted(found.values(), key=ways.position)


def names_called(ways: Traced | Watched) -> list[str]:
    """Every submodule that is called."""
    return list(ways.tracer.calls if isinstance(ways, Traced) else ways.calls)


def obstacle(ways: Traced | Watched, name: str) -> str:
    """Why a model cannot be cut at a submodule, in words; empty: it can."""
    count = ways.count(name)
    if not count:
        return "it is never called"
    if count > 1:
        return f"it is called {count} times"
    if kind := ways.returned(name):
        return f"it returns a {kind}, and exactly one tensor may cross"
    if ways.is_end(name):
        return "nothing is left for the server"
    if others := ways.crossing(name):
        shown = ", ".join(others[:NEAR]) + (f" and {len(others) - NEAR} more" if len(others) > NEAR else "")
        return f"{len(others) + 1} tensors cross there, its output and {shown}; exactly one may"
    return ""


def check_place(ways: Traced | Watched, name: str) -> None:
    """Refuse a place where not exactly one tensor crosses, with the nearest where one does."""
    if why := obstacle(ways, name):
        raise CutError(f"{type(ways.model).__name__} cannot be cut at {name}: {why}{offered(ways, name)}")


def offered(ways: Traced | Watched, name: str) -> str:
    """The nearest places before and behind a submodule; all that it holds and that holds it are near, too."""
    found = places(ways)
    if not found:
        return ""
    if not ways.count(name):
        near = difflib.get_close_matches(name, found, n=NEAR, cutoff=0)
    else:
        here = ways.position(name)
        before = [each for each in found if ways.position(each) <= here and each != name]
        behind = [each for each in found if ways.position(each) > here]
        near = [*before[-1:], *behind[:1]]
    return f". Nearest places: {' and '.join(near)}" if near else ""


def submodule_name(model: nn.Module, cut: str) -> str:
    """The name that the model itself has for a submodule; the nearest names where there is none of this name."""
    modules = dict(model.named_modules(remove_duplicate=False))
    if not cut or cut not in modules:
        near = difflib.get_close_matches(cut, [name for name in modules if name], n=NEAR, cutoff=0.3)
        first = [name for name, _ in model.named_children()]
        hint = f"did you mean {' or '.join(near)}?" if near else f"it begins with {', '.join(first[:8]) or 'none'}"
        raise CutError(f"{type(model).__name__} has no submodule {cut or '(without a name)'} to be cut at; {hint}")
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    return names[modules[cut]]


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are."""
    return next((each.device for each in (*model.parameters(), *model.buffers())), torch.device("cpu"))


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model and the random numbers of this process, afterwards as they were."""
    with modes_kept(model), torch.random.fork_rng():
        yield


@torch.no_grad()
def outputs(model: nn.Module, x: Tensor) -> Tensor:
    """What the model gives for inputs in evaluation mode, if it is one tensor; the same draws every time."""
    with undisturbed(model):
        torch.manual_seed(0)
        try:
            found = model.eval()(x.clone())
        except Exception as error:
            shape = "×".join(map(str, x.shape[1:]))
            raise UserError(
                f"{type(model).__name__} does not take inputs of {shape} ({type(error).__name__}: {first_line(error)})"
            ) from error
    if not isinstance(found, Tensor):
        raise UserError(f"{type(model).__name__} returns a {type(found).__name__}; it must return one tensor, logits")
    return found


@torch.no_grad()
def agree(model: nn.Module, parts: Parts, example: Tensor) -> bool:
    """Whether both parts, one after the other, give what the model gives, for batches of two sizes, and keep z."""
    encoder, head = parts
    for count in BATCHES:
        x = batch_of(example, count)
        expected = outputs(model, x)
        with modes_kept(encoder), modes_kept(head), torch.random.fork_rng():
            torch.manual_seed(0)
            z = encoder.eval()(x.clone())
            before = z.clone()
            if not torch.equal(head.eval()(z), expected) or not torch.equal(z, before):
                return False
    return True
