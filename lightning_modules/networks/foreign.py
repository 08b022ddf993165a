"""Networks that are not ours, by name, cut anywhere: torchvision's, timm's, and the user's own.

`torchvision:resnet18`, `timm:convnext_tiny`, `my_model.py:build`, `package.module:build`. A factory is called with
`classes` (or `num_classes`) and `shape`, if it takes them.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sweetspot.errors import UserError, first_line, meant
from sweetspot.files import DamagedFileError, read_tensors
from sweetspot.lightning_modules.networks.split import NETWORKS, SplitNetwork, Standardise, built, only_default_head
from sweetspot.lightning_modules.networks.splitting import CutError, outputs, split
from sweetspot.lightning_modules.networks.tracing import BATCHES
from sweetspot.registry import load_code

SHOWN = 3  # weights that an error names, of each kind
WITHOUT_AUXILIARY = {"aux_logits": False, "init_weights": True}  # with them a tuple is returned in training
TORCHVISION: dict[str, dict[str, Any]] = {"googlenet": WITHOUT_AUXILIARY, "inception_v3": WITHOUT_AUXILIARY}
WRAPPED = ("state_dict", "model")  # under which name checkpoints keep the weights among other things


def is_foreign(name: str) -> bool:
    """Whether a name is that of a network that is not ours: it says where it is from.

    Example:
        >>> is_foreign("torchvision:resnet18"), is_foreign("models/my_model.py:build"), is_foreign("lenet")
        (True, True, False)
    """
    return ":" in name and name not in NETWORKS and not Path(name).is_dir()


def is_code(name: str) -> bool:
    """Whether a network is made by code that the user must name: not ours, not of an installed library that we know."""
    return is_foreign(name) and name.partition(":")[0] not in LIBRARIES


def load_model(name: str, shape: tuple[int, ...], classes: int | None, weights: Path | None = None) -> nn.Module:
    """A whole model by name, also one of ours, freshly initialised or with weights.

    Args:
        name: as `--network` takes it.
        shape: of one input.
        classes: how many logits it gives; None: as many as it has by itself.
        weights: a file of them (.safetensors, or .pt and .pth without code), which must fit exactly.
    """
    if not is_foreign(name):
        if classes is None:
            raise UserError(f"the network {name} needs to know how many classes there are")
        model: nn.Module = nn.Sequential()
        for layer, module in built(name, shape, classes).layers.items():
            model.add_module(layer, module)
    else:
        source, _, wanted = name.partition(":")
        model = LIBRARIES.get(source, from_code)(name, wanted, tuple(shape), classes)
    if weights is not None:
        load_weights(model, weights)
    return model


def from_torchvision(name: str, wanted: str, shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """A classifier of torchvision, without weights."""
    from torchvision import models

    known = models.list_models(module=models)
    if wanted not in known:
        raise UserError(f"torchvision has no classifier {wanted}{meant(wanted, known, cutoff=0.4)}")
    options = {**TORCHVISION.get(wanted, {}), **({} if classes is None else {"num_classes": classes})}
    if wanted.startswith("vit_") and len(shape) == 3:
        options["image_size"] = shape[1]
    return made(name, lambda: models.get_model(wanted, weights=None, **options))


def from_timm(name: str, wanted: str, shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """A model of timm, without weights."""
    if importlib.util.find_spec("timm") is None:
        raise UserError(f"{name} needs timm, which is not installed: pip install timm")
    import timm

    if not timm.is_model(wanted):  # nor anything on a hub or in a folder, which timm would fetch
        raise UserError(f"timm has no model {wanted}{meant(wanted, timm.list_models(), cutoff=0.4)}")
    options = {"in_chans": shape[0], **({} if classes is None else {"num_classes": classes})}
    return made(name, lambda: timm.create_model(wanted, pretrained=False, **options))


def from_code(name: str, wanted: str, shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """A model that a user's own function makes, or class, in a file or a package."""
    with torch.random.fork_rng():  # a file is run once, and what it draws must not change the weights of that time
        module = load_code(name.partition(":")[0])
    factory = getattr(module, wanted, None)
    if not callable(factory) or isinstance(factory, nn.Module):
        functions = [each for each, value in vars(module).items() if callable(value)]
        what = "a model and no function that makes one" if isinstance(factory, nn.Module) else "no function"
        hint = "" if factory is not None else meant(wanted, functions)
        raise UserError(f"--network {name}: {wanted or '(nothing)'} is {what} there{hint}")
    taken = inspect.signature(factory).parameters
    given = {"classes": classes, "num_classes": classes, "shape": shape}
    return made(name, lambda: factory(**{each: given[each] for each in given if each in taken and given[each]}))


LIBRARIES: dict[str, Callable[[str, str, tuple[int, ...], int | None], nn.Module]] = {
    "torchvision": from_torchvision,
    "timm": from_timm,
}


def made(name: str, make: Callable[[], Any]) -> nn.Module:
    """What a factory makes, if it is a model."""
    try:
        model = make()
    except UserError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"--network {name} cannot be made ({said})") from error
    if not isinstance(model, nn.Module):
        raise UserError(f"--network {name} makes a {type(model).__name__}, and no nn.Module")
    return model


# ---------------------------------------------------------------------- weights


def load_weights(model: nn.Module, file: Path) -> None:
    """Give a model the weights of a file; what does not fit is named."""
    weights = read_weights(file)
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in wanted]
    shapes = [
        f"{name} ({tuple(weights[name].shape)}, not {tuple(wanted[name].shape)})"
        for name in wanted.keys() & weights.keys()
        if weights[name].shape != wanted[name].shape
    ]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", sorted(shapes)))
    wrong = [
        f"{what}: {', '.join(names[:SHOWN])}" + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        for what, names in kinds
        if names
    ]
    if wrong:
        raise UserError(f"--weights {file} does not fit {type(model).__name__}; {'; '.join(wrong)}")
    model.load_state_dict(weights, strict=False)


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name; nothing in it is run."""
    if not file.is_file():
        raise UserError(f"--weights: there is no file {file}")
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            found = read_tensors(file)
    except DamagedFileError as error:
        raise UserError(
            f"--weights {file} is damaged, or holds more than tensors; save model.state_dict() by torch.save"
        ) from error
    except OSError as error:
        raise UserError(f"--weights {file} cannot be read ({error.strerror or first_line(error)})") from error
    except Exception as error:  # safetensors has an exception of its own
        raise UserError(f"--weights {file} is damaged ({first_line(error)})") from error
    for name in WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(each, Tensor) for each in found.values()) or not found:
        raise UserError(f"--weights {file} must hold tensors by name, as model.state_dict() has them")
    parallel = all(name.startswith("module.") for name in found)  # as DistributedDataParallel saves them
    return {name.removeprefix("module.") if parallel else name: weight for name, weight in found.items()}


# ---------------------------------------------------------------------- cut


def build_foreign(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    cut: int | str,
    head: str,
    pixels: dict[str, list[float]] | None,
    weights: Path | None,
) -> SplitNetwork:
    """A network that is not ours, cut at the output of a submodule."""
    only_default_head(name, head)
    model = load_model(name, shape, classes, weights)
    example = examples(shape)
    logits = outputs(model, example)
    if logits.shape != (len(example), classes):
        raise UserError(
            f"--network {name} gives {tuple(logits.shape[1:])} for an input, and the data have {classes} classes: "
            f"it must give as many logits"
        )
    try:
        return ForeignNetwork(model, str(cut), pixels, example)
    except CutError as error:
        raise UserError(f"{error}; --cut ? lists the places") from error


def examples(shape: tuple[int, ...]) -> Tensor:
    """Some inputs of a shape, the same every time."""
    return torch.rand(BATCHES[0], *shape, generator=torch.Generator().manual_seed(0))


class Contiguous(nn.Module):
    """Inputs in the order that a model expects in memory, as `x.view(len(x), -1)` does; data may come in another.

    Of images with one channel both orders are contiguous, and only strides tell convolutions which one is meant.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).view(x.shape)


class ForeignNetwork(SplitNetwork):
    """A model that is cut at the output of one of its submodules; `encoder.model` is the client's part of it.

    Args:
        model: takes inputs and returns logits.
        cut: the submodule's name.
        pixels: as in SplitNetwork.
        example: some inputs.
    """

    def __init__(
        self, model: nn.Module, cut: str, pixels: dict[str, list[float]] | None, example: Tensor | None = None
    ) -> None:
        nn.Module.__init__(self)
        self.cut_layer = cut
        client, self.head = split(model, cut, example)
        self.encoder = nn.Sequential()
        if pixels is not None:
            self.encoder.add_module("standardise", Standardise(**pixels))
        self.encoder.add_module("contiguous", Contiguous())
        self.encoder.add_module("model", client)
