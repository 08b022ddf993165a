"""A second device that is only pretended: its tensors lie in the CPU's memory, are computed on, and are told apart.

    with SecondDevice() as second:
        x = torch.rand(3).to(second.device)      # x.device is cuda:0
        x + torch.rand(3)                        # MixedDevicesError, as on a GPU
        x.sum().item()                           # computed; second.waits has a line more

Memory that lies on the second device carries a mark on its storage, so views, `.data` and in-place writes keep it. What
a kernel makes of marked tensors is marked; where marked and unmarked tensors meet, it is an error, apart from CPU
scalars in elementwise arithmetic, which a GPU takes as well. What would make the host wait for a GPU's queue is
written down with the line that asked for it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

ROOT = str(Path(__file__).resolve().parents[2])
MARK = "lies_on_the_second_device"

# asks for a number, or for a shape that only the values tell: the host waits until all that was queued is done
WAITING = {
    "_local_scalar_dense",
    "_linalg_check_errors",
    "_unique2",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
# optimisers ask the driver whether a graph is being captured, by a name that depends on torch's version
GRAPH_CHECKS = {"_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"}
COPIES_OUT = (Tensor.cpu, Tensor.tolist)
NEEDS_CPU = (Tensor.numpy, Tensor.__array__)
MOVES = (Tensor.to, Tensor.cuda, Tensor.type_as, torch.as_tensor, torch.asarray)
FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray)  # of numbers that Python holds


class MixedDevicesError(AssertionError):
    """What a GPU would have refused, or done by a hidden copy."""


@dataclass(frozen=True)
class Wait:
    """One time that the host would have waited for the device.

    Args:
        what: the operation.
        where: the line of ours that asked for it, `path:line`.
        function: that line's function.
    """

    what: str
    where: str
    function: str


def is_marked(tensor: Tensor) -> bool:
    """Whether a tensor lies on the second device."""
    try:
        return hasattr(tensor.untyped_storage(), MARK)
    except (NotImplementedError, RuntimeError):  # it has no storage
        return False


def tensors_in(*values: Any) -> list[Tensor]:
    """All tensors among some arguments or results."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_in(*value)
        elif isinstance(value, dict):
            found += tensors_in(*value.values())
    return found


def mark(tensor: Tensor) -> None:
    """Say that a tensor's memory lies on the second device."""
    with contextlib.suppress(NotImplementedError):
        setattr(tensor.untyped_storage(), MARK, True)


class Moved(torch.autograd.Function):
    """A copy on the other device; its gradient travels back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, second: SecondDevice, onto: bool) -> Tensor:
        ctx.second, ctx.onto = second, onto
        return second.copied(x, onto)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.second.copied(gradients[0], not ctx.onto), None, None


class PretendedGenerator(torch.Generator):
    """A generator that knows which of the two devices it was made for."""

    def __new__(cls, device: Any = "cpu") -> PretendedGenerator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self.home = torch.device(device)

    def manual_seed(self, seed: int) -> PretendedGenerator:
        super().manual_seed(seed)
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.home


class Kernels(TorchDispatchMode):
    """Every kernel that runs, whoever called it, backward passes too."""

    def __init__(self, second: SecondDevice) -> None:
        super().__init__()
        self.second = second

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tensors_in(args, kwargs)
        marked = [each for each in given if is_marked(each)]
        if marked:
            self.second.check(func, args, given, marked)
        out = func(*args, **kwargs)
        if self.second.lies_on_it(bool(given), bool(marked)):
            for each in tensors_in(out):
                if not any(each is other for other in given):
                    mark(each)
        return out


class SecondDevice(TorchFunctionMode):
    """`with SecondDevice() as second`: a GPU is pretended, and `second.device` is its name."""

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cuda", 0)
        self.waits: list[Wait] = []
        self.kernels = Kernels(self)
        self.said: bool | None = None  # where the call that is running has said that its results lie
        self.near = False  # whether it has arguments on the second device: what it makes from nothing lies there too
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> SecondDevice:
        for name, replaced in self.pretended_cuda().items():
            self.stack.enter_context(mock.patch.object(torch.cuda, name, replaced))
        for name in GRAPH_CHECKS & vars(torch.optim.Optimizer).keys():
            self.stack.enter_context(mock.patch.object(torch.optim.Optimizer, name))
        self.stack.enter_context(mock.patch.object(torch, "Generator", PretendedGenerator))
        self.stack.enter_context(mock.patch.object(torch._C._nn, "_parse_to", self.parsed(torch._C._nn._parse_to)))
        self.stack.enter_context(self.kernels)
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.stack.close()

    def pretended_cuda(self) -> dict[str, Callable[..., Any]]:
        """What of torch.cuda our code and Lightning ask for."""
        return {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "set_device": lambda device: None,
            "empty_cache": lambda: None,
            "get_device_capability": lambda device=None: (7, 0),
            "get_device_name": lambda device=None: "a pretended GPU",
            "get_device_properties": lambda device: SimpleNamespace(total_memory=2**34, name="a pretended GPU"),
            "get_rng_state": lambda device=None: torch.zeros(1),
            "set_rng_state": lambda state, device=None: None,
            "manual_seed": lambda seed: None,
            "manual_seed_all": lambda seed: None,
            "synchronize": lambda device=None: self.wait("synchronize"),
        }

    # ------------------------------------------------------------------ what Python calls

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") == "__get__":
            return self.got(func, args)
        if func in NEEDS_CPU and is_marked(args[0]):
            raise MixedDevicesError(f"{func.__name__} of a tensor on {self.device}{self.here()}")
        if func in COPIES_OUT:
            if not is_marked(args[0]):
                return func(*args, **kwargs)
            if func is Tensor.tolist:
                self.wait("tolist")
                return func(*args)
            return self.moved(args[0], False, "cpu", False)
        if func in MOVES and isinstance(args[0], Tensor):
            return self.converted(func, args, kwargs)
        return self.called(func, args, kwargs)

    def got(self, func: Any, args: tuple[Any, ...]) -> Any:
        """What a tensor says of where it lies; other properties as they are."""
        name = getattr(func.__self__, "__name__", "")
        if name in ("device", "is_cpu", "is_cuda") and is_marked(args[0]):
            return {"device": self.device, "is_cpu": False, "is_cuda": True}[name]
        return func(*args)

    def called(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any other function, its device and its generator looked at."""
        said, near = None, any(map(is_marked, tensors_in(args, kwargs)))
        if kwargs.get("device") is not None:
            said = self.is_second(kwargs["device"])
            kwargs["device"] = torch.device("cpu")
            if said and func in FROM_HOST:
                self.wait("copy from Python")
        generator = next((each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)), None)
        place = self.named(near if said is None else said)
        if generator is not None and generator.device.type != place:
            name = getattr(func, "__name__", func)
            raise MixedDevicesError(f"{name} on {place} with a generator of {generator.device}{self.here()}")
        with self.calling(said, near):
            out = func(*args, **kwargs)
        if said:  # what is made of Python's numbers comes from no kernel
            for each in tensors_in(out):
                mark(each)
        return out

    def converted(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`to` and its like: a copy where the device changes, and all else that they do."""
        x, onto, asynchronous = args[0], None, bool(kwargs.get("non_blocking", False))
        rest: list[Any] = []
        if func is Tensor.cuda:
            onto = True
        for each in args[1:]:
            if isinstance(each, Tensor):  # like this one
                onto = is_marked(each)
                rest.append(each.dtype)
            elif isinstance(each, torch.device | str) and func is not Tensor.cuda:
                onto = self.is_second(each)
            elif isinstance(each, torch.dtype):
                rest.append(each)
            elif isinstance(each, bool):
                asynchronous = asynchronous or each
        if kwargs.get("device") is not None:
            onto = self.is_second(kwargs["device"])
        if isinstance(kwargs.get("other"), Tensor):
            onto = is_marked(kwargs["other"])
            rest.append(kwargs.pop("other").dtype)
        kwargs.pop("device", None)
        kwargs.pop("non_blocking", None)
        if kwargs.get("dtype", 0) is None:
            kwargs.pop("dtype")
        out: Tensor = x
        if onto is not None and onto != is_marked(x):
            out = self.moved(x, onto, "to", asynchronous)
        if rest or kwargs:
            with self.calling(None, False):
                out = Tensor.to(out, *rest, **kwargs)
        return out

    def parsed(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        """How `module.to(like)` reads its arguments."""

        def parsed(*args: Any, **kwargs: Any) -> Any:
            device, *others = parse(*args, **kwargs)
            like = next(iter(tensors_in(args, kwargs)), None)
            return (self.device if like is not None and is_marked(like) else device, *others)

        return parsed

    # ------------------------------------------------------------------ what becomes of memory

    def moved(self, x: Tensor, onto: bool, what: str, asynchronous: bool) -> Tensor:
        """x on the other device, differentiably."""
        if not asynchronous or not onto:  # whoever reads a copy on the host has to wait for it in the end
            self.wait(f"{what} {self.named(onto)}")
        with self.calling(None, False):
            out: Tensor = Moved.apply(x, self, onto)
        return out

    def copied(self, x: Tensor, onto: bool) -> Tensor:
        """A copy of x's numbers, marked or not."""
        with torch.utils._python_dispatch._disable_current_modes():
            out = x.detach().clone(memory_format=torch.preserve_format)
        if onto:
            mark(out)
        return out

    def check(self, func: Any, args: tuple[Any, ...], given: list[Tensor], marked: list[Tensor]) -> None:
        """Refuse a kernel whose tensors lie on both devices, and write down one that makes the host wait."""
        name = func.overloadpacket.__name__
        unmarked = [each for each in given if not is_marked(each) and each.device.type == "cpu"]
        if name == "copy_":
            if unmarked:
                self.wait("copy_")
        elif unmarked and not self.takes(func, args, unmarked):
            shapes = ", ".join(str(tuple(each.shape)) for each in unmarked)
            raise MixedDevicesError(f"{func} of tensors on {self.device} and on the CPU ({shapes}){self.here()}")
        if name in WAITING or (name == "repeat_interleave" and func._overloadname == "Tensor"):
            self.wait(name)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"):
            masks = [each for each in args[1] if each is not None and each.dtype in (torch.bool, torch.uint8)]
            filled = name != "index" and args[2].numel() == 1 and len(masks) == len(args[1])  # that is a masked_fill
            if masks and not filled:
                self.wait(f"{name} by a mask")

    def takes(self, func: Any, args: tuple[Any, ...], unmarked: list[Tensor]) -> bool:
        """Whether a GPU takes these CPU tensors beside its own: scalars in elementwise arithmetic, never written to."""
        name = func.overloadpacket.__name__
        elementwise = torch.Tag.pointwise in func.tags or name in ("fill_", "where", "index_put_", "_index_put_impl_")
        is_written = name.endswith("_") and args and any(args[0] is each for each in unmarked)
        return all(each.ndim == 0 for each in unmarked) and elementwise and not is_written

    # ------------------------------------------------------------------ what is written down

    @contextlib.contextmanager
    def calling(self, said: bool | None, near: bool) -> Iterator[None]:
        """While a function runs, what it says of where its results lie."""
        before = self.said, self.near
        self.said, self.near = said, near
        try:
            yield
        finally:
            self.said, self.near = before

    def lies_on_it(self, is_given: bool, is_given_marked: bool) -> bool:
        """Whether what a kernel made lies on the second device, by whether it was given tensors, and such of it."""
        if self.said is not None:
            return self.said
        return is_given_marked if is_given else self.near

    def is_second(self, device: Any) -> bool:
        """Whether a device is the second one."""
        return isinstance(device, int) or torch.device(device).type == self.device.type

    def named(self, onto: bool) -> str:
        """What a device is called."""
        return self.device.type if onto else "cpu"

    def wait(self, what: str) -> None:
        """Write down that the host would have waited."""
        where, function = caller()
        self.waits.append(Wait(what, where, function))

    def here(self) -> str:
        """Where our code is, for an error."""
        where, function = caller()
        return f", at {where} in {function}"

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[Wait]]:
        """The waits of a block."""
        before, found = len(self.waits), list[Wait]()
        try:
            yield found
        finally:
            found += self.waits[before:]


def caller() -> tuple[str, str]:
    """The innermost line of ours that is running, and its function."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and ".venv" not in file and file != __file__:
            return f"{file[len(ROOT) + 1 :]}:{frame.f_lineno}", frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return "somewhere else", ""
