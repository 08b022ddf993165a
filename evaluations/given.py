"""What a caller gives to be attacked: inputs, labels and two modules, checked, and left as they were."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sweetspot.datamodules import Arrays, TensorDataModule
from sweetspot.datamodules.mapped import MappedImages
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError, first_line
from sweetspot.lightning_modules.defences.releases import Chain, Release
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.runs.choices import LEAST_DATA

TRIED = 2  # inputs that a network is tried on before anything else is done with it


# ---------------------------------------------------------------------- inputs


def data_given(test: Any, attacker: Any, name: str = "inputs") -> TensorDataModule:
    """Test inputs and the attacker's own as a dataset whose training split is the attacker's; it may be empty.

    Args:
        test: inputs x and classes y, some of which are attacked.
        attacker: the same of the attacker's own; None: it has none.
        name: what results call the data.
    """
    x_test, y_test = checked_pair("test", test, 2)
    x_own, y_own = x_test[:0], y_test[:0]
    if attacker is not None:
        x_own, y_own = checked_pair("attacker", attacker, LEAST_DATA)
        if x_own.shape[1:] != x_test.shape[1:]:
            shapes = f"{tuple(x_test.shape[1:])} and {tuple(x_own.shape[1:])}"
            raise UserError(f"test and attacker must hold inputs of one shape; got {shapes}")
        if x_own.dtype != x_test.dtype:  # bytes are a 255th of what floats are
            x_own, x_test = (scaled(each).contiguous() for each in (x_own, x_test))
    classes = int(max(y_test.max(), y_own.max() if len(y_own) else y_test.max())) + 1
    digest = hashlib.sha256()
    for each in (x_test, y_test, x_own, y_own):
        digest.update(each.contiguous().numpy().tobytes())
    arrays = Arrays(
        name, "given", x_own, y_own, x_test, y_test, max(classes, 2), identity=digest.hexdigest()
    )  # fmt: skip
    return TensorDataModule(arrays, validation_fraction=0.0)


def checked_pair(what: str, pair: Any, least: int) -> tuple[Tensor, Tensor]:
    """Inputs and classes as tensors on the CPU, if they can be attacked."""
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise UserError(f"{what} must be a pair (x, y) of inputs and class indices; got {type(pair).__name__}")
    x, y = (as_tensor(f"{what}'s {part}", each) for part, each in zip("xy", pair, strict=True))
    x = checked_inputs(f"{what}'s x", x)
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        got = f"{str(y.dtype).removeprefix('torch.')} of shape {tuple(y.shape)}"
        raise UserError(f"{what}'s y must hold class indices, whole numbers of shape (N,); got {got}")
    if len(x) != len(y):
        raise UserError(f"{what} must have as many labels as inputs; got {len(x)} inputs and {len(y)} labels")
    if len(x) < least:
        raise UserError(f"{what} must hold at least {least} inputs; got {len(x)}")
    if int(y.min()) < 0:
        raise UserError(f"{what}'s y has the label {int(y.min())}; class indices begin at 0")
    return x, y.long()


def as_tensor(what: str, given: Any) -> Tensor:
    """A tensor or an array as a tensor on the CPU."""
    if not isinstance(given, Tensor | np.ndarray):
        raise UserError(f"{what} must be a tensor or an array; got {type(given).__name__}")
    try:
        return torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} cannot be made a tensor ({first_line(error)})") from error


def checked_inputs(what: str, x: Tensor) -> Tensor:
    """Images (N, C, H, W) as bytes or as floats in [0, 1], or vectors (N, d) as floats."""
    if x.ndim not in (2, 4) or 0 in x.shape[1:]:
        raise UserError(f"{what} must have the shape (N, C, H, W) or (N, d); got {tuple(x.shape)}")
    if x.ndim == 4 and x.shape[1] not in (1, 3):
        last = "; channels come first" if x.shape[3] in (1, 3) else ""
        raise UserError(f"{what} must hold images of 1 or 3 channels, (N, C, H, W); got {tuple(x.shape)}{last}")
    if x.dtype == torch.uint8:
        return x if x.ndim == 4 else x.float()  # bytes are pixels only in an image
    if not x.is_floating_point():
        raise UserError(f"{what} must be uint8 or float; got {str(x.dtype).removeprefix('torch.')}")
    x = x.float()
    if not x.isfinite().all():
        raise UserError(f"{what} holds NaN or infinite values")
    if x.ndim == 4 and (x.min() < 0 or x.max() > 1):
        raise UserError(
            f"{what} must lie in [0, 1]; got values in [{x.min():.4g}, {x.max():.4g}]: let the encoder normalise them"
        )
    return x


def shared_inputs(data: TensorDataModule) -> int:
    """How many test inputs are among the attacker's own."""
    if any(isinstance(x, MappedImages) for x, _ in (data.train, data.test)):
        return 0  # on disk, too many to read for this
    own = {row.tobytes() for row in data.train[0].contiguous().numpy()}
    return sum(row.tobytes() in own for row in data.test[0].contiguous().numpy()) if own else 0


def check_classes(data: TensorDataModule) -> None:
    """Refuse an attacker who has no input of a class that is attacked: there would be no label-only floor."""
    missing = sorted({*data.test[1].unique().tolist()} - {*data.train[1].unique().tolist()})
    if len(data.train[1]) and missing:
        raise UserError(f"attacker must hold inputs of every class in test; it has none of class {missing[0]}")


# ---------------------------------------------------------------------- modules


def release_given(release: Any) -> Callable[[Tensor], Tensor]:
    """What is done to z before it leaves the client; None lets everything through."""
    if release is None:
        return Chain()
    if isinstance(release, Release):
        return Chain(release)
    if not callable(release):
        raise UserError(f"release must be a Release, a module or a function of z; got {type(release).__name__}")
    found: Callable[[Tensor], Tensor] = release
    return found


@contextlib.contextmanager
def borrowed(parts: Sequence[Any], device: torch.device) -> Iterator[None]:
    """Modules in evaluation mode and frozen, on a device; afterwards each is as it was, and where it was."""
    modules = [part for part in parts if isinstance(part, nn.Module)]
    modes = [(each, each.training) for module in modules for each in module.modules()]
    frozen = [(each, each.requires_grad) for module in modules for each in module.parameters()]
    places = [next((each.device for each in (*module.parameters(), *module.buffers())), None) for module in modules]
    try:
        for module in modules:
            module.eval().requires_grad_(False).to(device)
        yield
    finally:
        for module, place in zip(modules, places, strict=True):
            if place is not None:
                module.to(place)
        for each, training in modes:
            each.training = training
        for parameter, requires_grad in frozen:
            parameter.requires_grad_(requires_grad)


def check_modules(encoder: Any, head: Any) -> None:
    """Refuse what are no two modules."""
    for name, part in (("encoder", encoder), ("head", head)):
        if not isinstance(part, nn.Module):
            raise UserError(f"{name} must be a torch.nn.Module; got {type(part).__name__}")


@torch.no_grad()
def check_runs(
    encoder: nn.Module, head: nn.Module, release: Callable[[Tensor], Tensor], data: TensorDataModule, place: Any
) -> None:
    """Refuse a pair of modules that does not turn the inputs into one tensor, and that into logits."""
    x = scaled(data.test[0][:TRIED].to(place))
    with draws_from(0, torch.device(place)):
        z = answer_of("the encoder", encoder, x)
        z = answer_of("the release", release, z)
        logits = answer_of("the head", head, z)
    if logits.ndim != 2 or logits.shape[1] < data.classes:
        raise UserError(
            f"the head must return logits (N, K) for K ≥ {data.classes} classes, as y has them; "
            f"got {tuple(logits.shape)} for {TRIED} inputs"
        )
    if not z.isfinite().all():
        raise UserError("the encoder returns NaN or infinite values; nothing can be recovered from them")


def answer_of(what: str, part: Callable[[Tensor], Any], given: Tensor) -> Tensor:
    """What a part returns for a batch, if that is one tensor with a row for each."""
    try:
        answer = part(given)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"{what} does not run on {tuple(given.shape)} ({first_line(error)})") from error
    if not isinstance(answer, Tensor):
        raise UserError(f"{what} must return one tensor; got {type(answer).__name__}")
    if answer.ndim < 2 or len(answer) != len(given):
        raise UserError(f"{what} must return a row for each input; got {tuple(answer.shape)} for {len(given)}")
    return answer


def fingerprint(*parts: Any) -> str:
    """What tells modules from others: their layers and their weights; of a function its name."""
    made_of = hashlib.sha256()
    for part in parts:
        made_of.update((repr(part) if isinstance(part, nn.Module) else name_of(part)).encode())
        for name, tensor in part.state_dict().items() if isinstance(part, nn.Module) else ():
            made_of.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            made_of.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return made_of.hexdigest()


def name_of(part: Any) -> str:
    """What a release of any kind is called."""
    return str(getattr(part, "name", "") or getattr(part, "__qualname__", "") or type(part).__name__)


def release_record(release: Callable[[Tensor], Tensor]) -> list[dict[str, Any]]:
    """A release as results record it: each with its name and options; of what is not ours the name alone."""
    parts = list(release) if isinstance(release, Chain) else [release]
    return [{"name": name_of(each), **(each.record() if isinstance(each, Release) else {})} for each in parts]
