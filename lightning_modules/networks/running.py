"""A model that cannot be traced, cut by running it: stopped at a submodule's output, or with z in that one's place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sweetspot.lightning_modules.networks.counting import modes_kept
from sweetspot.lightning_modules.networks.tracing import BATCHES, batch_of


@dataclass
class Call:
    """One call of a submodule in a forward pass.

    Args:
        began: when, in steps.
        ended: when it was done.
        output: what it returned.
        function: the autograd function of that output at that time.
    """

    began: int
    ended: int = -1
    output: Any = None
    function: Any = None


class Watched:
    """A forward pass of a model in evaluation mode, by submodules, with its autograd graph.

    Args:
        model: is run.
        x: its inputs.
    """

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model = model
        self.calls: dict[str, list[Call]] = {}
        self.clock = 0
        self.x = x.detach().clone().requires_grad_()
        frozen = [each for each in model.parameters() if each.is_floating_point() and not each.requires_grad]
        handles: list[Any] = []
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(self.beginning(name)))
            handles.append(module.register_forward_hook(self.ending(name)))
        try:
            for each in frozen:
                each.requires_grad_(True)
            with modes_kept(model), torch.enable_grad():
                self.logits = model.eval()(self.x.view_as(self.x))  # a model may write into its input
        finally:
            for handle in handles:
                handle.remove()
            for each in frozen:
                each.requires_grad_(False)

    def beginning(self, name: str) -> Callable[..., None]:
        def begin(*_: Any) -> None:
            self.clock += 1
            self.calls.setdefault(name, []).append(Call(self.clock))

        return begin

    def ending(self, name: str) -> Callable[..., None]:
        def end(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self.clock += 1
            call = next(each for each in reversed(self.calls[name]) if each.ended < 0)
            call.ended, call.output = self.clock, tree_map(detached, output)
            call.function = output.grad_fn if isinstance(output, Tensor) else None

        return end

    def count(self, name: str) -> int:
        """How many times a submodule was called."""
        return len(self.calls.get(name, []))

    def call(self, name: str) -> Call:
        """The only call of a submodule."""
        return self.calls[name][0]

    def returned(self, name: str) -> str:
        """What the submodule returned, where that is no tensor; else empty."""
        output = self.call(name).output
        return "" if isinstance(output, Tensor) else type(output).__name__

    def position(self, name: str) -> int:
        """When the submodule was done."""
        return self.call(name).ended

    def place(self, name: str) -> Any:
        """What two names share that mean the same cut."""
        return self.call(name).function

    def is_end(self, name: str) -> bool:
        """Whether the model returned what the submodule returned."""
        return self.call(name).function is self.logits.grad_fn

    def crossing(self, name: str) -> list[str]:
        """What the server would need beside the submodule's output, in words."""
        if self.call(name).function is None:
            return ["something that no gradient flows through"]
        behind = reached(self.logits.grad_fn, self.call(name).function)
        if not any(getattr(each, "variable", None) is self.x for each in behind):
            return []
        before = [
            (each.ended, other)
            for other, calls in self.calls.items()
            for each in calls
            if other and each.ended < self.position(name) and each.function in behind and self.reaches_x(each.function)
        ]
        return [max(before)[1]] if before else ["the input"]

    def reaches_x(self, function: Any) -> bool:
        """Whether an autograd function's result depends on the input."""
        return any(getattr(each, "variable", None) is self.x for each in reached(function))

    def client_parameters(self, name: str) -> list[nn.Parameter]:
        """The client's weights."""
        return self.weights(reached(self.call(name).function))

    def server_parameters(self, name: str) -> list[nn.Parameter]:
        """The server's weights."""
        return self.weights(reached(self.logits.grad_fn, self.call(name).function))

    def weights(self, functions: Collection[Any]) -> list[nn.Parameter]:
        """The model's parameters among the leaves of some autograd functions."""
        leaves = {id(each.variable) for each in functions if hasattr(each, "variable")}
        return [each for each in self.model.parameters() if id(each) in leaves]

    def parts(self, name: str) -> tuple[nn.Module, nn.Module]:
        """The client's and the server's part, which share the model's weights."""
        seen = [Watched(self.model, batch_of(self.x, count)) for count in BATCHES]
        return self.client(name), self.server(name, seen)

    def client(self, name: str) -> nn.Module:
        """From the input to the submodule's output."""
        cut, used = self.call(name), {id(each) for each in self.client_parameters(name)}

        def chosen(path: str, module: nn.Module) -> nn.Module | None:
            begins = [call.began for path_, calls in self.calls.items() if is_in(path_, path) for call in calls]
            runs = any(began < cut.ended for began in begins)
            return None if runs or any(id(each) in used for each in module.parameters()) else nn.Module()

        model = copied(self.model, chosen, used)
        model.get_submodule(name).register_forward_hook(stop)
        return Stopped(model)

    def server(self, name: str, seen: list[Watched]) -> nn.Module:
        """From the submodule's output to the logits."""
        cut, used = self.call(name), {id(each) for each in self.server_parameters(name)}
        given = Given()

        def chosen(path: str, module: nn.Module) -> nn.Module | None:
            if path == name:
                return given
            if is_in(name, path) or any(id(each) in used for each in module.parameters()):
                return None
            own = self.calls.get(path, [])
            if own and all(call.ended < cut.ended for call in own):
                outputs = [[call.output for call in each.calls[path]] for each in seen]
                return Stub(given, [template(pair) for pair in zip(*outputs, strict=True)])
            inside = [call for path_, calls in self.calls.items() if is_in(path_, path) for call in calls]
            return None if any(call.ended > cut.ended for call in inside) or not own else nn.Module()

        length = seen[0].call(name).output.shape[0] // BATCHES[0]
        return Continued(copied(self.model, chosen, used), given, tuple(self.x.shape[1:]), max(length, 1))


def detached(value: Any) -> Any:
    """A tensor without its graph; anything else as it is."""
    return value.detach() if isinstance(value, Tensor) else value


def reached(function: Any, stop: Any = None) -> set[Any]:
    """All autograd functions that one depends on, itself among them, not beyond `stop`."""
    found: set[Any] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each is None or each is stop or each in found:
            continue
        found.add(each)
        waiting += [before for before, _ in each.next_functions]
    return found


def is_in(name: str, outer: str) -> bool:
    """Whether a submodule is another, or lies in it."""
    return name == outer or name.startswith(f"{outer}." if outer else "")


class ReachedError(BaseException):
    """The cut is reached; no error, and nothing that a model may catch."""

    def __init__(self, z: Tensor) -> None:
        super().__init__()
        self.z = z


def stop(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
    """The hook that ends a forward pass at the cut."""
    raise ReachedError(output)


class Stopped(nn.Module):
    """A model that is run until the cut."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        try:
            self.model(x)
        except ReachedError as reached_it:
            return reached_it.z
        raise RuntimeError("the model was done before it came to the cut")


class Given(nn.Module):
    """What stands in the submodule's place: it returns z, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.z: Tensor | None = None
        self.length = 0
        self.turns: dict[int, int] = {}

    def forward(self, *_: Any, **__: Any) -> Tensor:
        assert self.z is not None
        return self.z


class Stub(nn.Module):
    """What stands in the place of a submodule of the client: zeros of its outputs' shapes."""

    def __init__(self, given: Given, outputs: list[Any]) -> None:
        super().__init__()
        self.given, self.outputs = [given], outputs  # in a list, so that it is no submodule
        self.turn = 0

    def forward(self, *_: Any, **__: Any) -> Any:
        output = self.outputs[self.turn % len(self.outputs)]
        self.turn += 1
        return tree_map(self.made, output)

    def made(self, value: Any) -> Any:
        """A tensor of zeros for a shape; anything else as it is."""
        if not isinstance(value, Zeros):
            return value
        given = self.given[0]
        assert given.z is not None
        shape = [size * (given.length if grows else 1) for size, grows in value.sizes]
        return torch.zeros(shape, dtype=value.dtype, device=given.z.device)


@dataclass(frozen=True)
class Zeros:
    """A tensor of zeros: each size, and whether it is that for one input and grows with the batch."""

    sizes: tuple[tuple[int, bool], ...]
    dtype: torch.dtype


def template(outputs: tuple[Any, ...]) -> Any:
    """What a submodule returned for two batches, with Zeros in the place of tensors."""

    def one(small: Any, large: Any) -> Any:
        if not isinstance(small, Tensor):
            return small
        pairs = zip(small.shape, large.shape, strict=True)
        return Zeros(tuple((a if a == b else a // BATCHES[0], a != b) for a, b in pairs), small.dtype)

    return tree_map(one, *outputs)


class Continued(nn.Module):
    """A model that is run with z in the place of the submodule's output, and nothing of the client's before it."""

    def __init__(self, model: nn.Module, given: Given, shape: tuple[int, ...], length: int) -> None:
        super().__init__()
        self.model, self.given, self.shape, self.length = model, given, shape, length

    def forward(self, z: Tensor) -> Tensor:
        self.given.z, self.given.length = z.clone(), len(z) // self.length  # z belongs to whoever gave it
        for each in self.model.modules():
            if isinstance(each, Stub):
                each.turn = 0
        try:
            logits: Tensor = self.model(z.new_zeros(self.given.length, *self.shape))
        finally:
            self.given.z = None
        return logits


def copied(model: nn.Module, chosen: Callable[[str, nn.Module], nn.Module | None], used: Collection[int]) -> nn.Module:
    """A copy that shares its weights with the model.

    Args:
        model: is copied.
        chosen: what stands in a submodule's place, by its name; None: a copy of it.
        used: the `id` of each weight that it needs; in the place of others there are zeros, which nobody saves.
    """
    copies: dict[nn.Module, nn.Module] = {}

    def copy(module: nn.Module, path: str) -> nn.Module:
        if module in copies:
            return copies[module]
        if path and (other := chosen(path, module)) is not None:
            copies[module] = other
            return other
        twin = copies[module] = module.__new__(type(module))
        twin.__dict__ = {
            name: value.copy() if isinstance(value, dict | set) else value for name, value in vars(module).items()
        }
        for name, weight in module._parameters.items():
            if weight is not None and id(weight) not in used:
                del twin._parameters[name]
                twin.register_buffer(name, torch.zeros_like(weight), persistent=False)
        for name, child in module._modules.items():
            twin._modules[name] = None if child is None else copy(child, f"{path}.{name}".lstrip("."))
        return twin

    return copy(model, "")
