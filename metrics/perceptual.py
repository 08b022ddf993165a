"""PSIM = 1 − LPIPS(AlexNet): perceptual similarity, with the weights from wherever this machine can have them."""

from __future__ import annotations

import contextlib
import re
import warnings
from pathlib import Path

import lpips
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models import AlexNet_Weights

from sweetspot.datamodules.assets import LPIPS_ALEXNET, fetch, read_arrays
from sweetspot.datamodules.torchvision_sets import STALL_SECONDS, reachable, stall_limit

LEAST_SIZE = 64  # AlexNet's feature maps vanish on smaller images
CONVOLUTIONS = (0, 3, 6, 8, 10)  # where torchvision's AlexNet has them
HASH_IN_NAME = re.compile(r"-([a-f0-9]{8,})\.")  # alexnet-owt-7be5be79.pth: how its SHA-256 begins

Features = list[tuple[Tensor, Tensor]]


def psim(recovered: Tensor, original: Tensor, network: lpips.LPIPS) -> Tensor:
    """Perceptual similarity of each pair of images in [0, 1], (B, C, H, W) × (B, C, H, W) → (B,)."""
    distance: Tensor = network(prepared(recovered), prepared(original))  # (B, 1, 1, 1)
    return 1 - distance.flatten()


def prepared(x: Tensor) -> Tensor:
    """Images as LPIPS takes them: three channels, in [−1, 1], at least 64 px."""
    x = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
    if min(x.shape[-2:]) < LEAST_SIZE:
        x = F.interpolate(x, size=(LEAST_SIZE, LEAST_SIZE), mode="bilinear", align_corners=False)
    return 2 * x - 1


def perceptual_network() -> lpips.LPIPS:
    """A new LPIPS with AlexNet: its features from torch's hub cache, from the hub, or from a package that carries them.

    Raises:
        AssetError: where none of them can be had.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lpips still calls torchvision by its old arguments
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    features = alexnet_features()
    slices = [layer for part in range(1, 6) for layer in getattr(network.net, f"slice{part}")]
    for layer, (weight, bias) in zip([s for s in slices if isinstance(s, torch.nn.Conv2d)], features, strict=True):
        layer.load_state_dict({"weight": weight, "bias": bias})
    return network.eval().requires_grad_(False)


def alexnet_features() -> Features:
    """Weight and bias of AlexNet's five convolutions, trained on ImageNet, from the first place that has them."""
    url = AlexNet_Weights.IMAGENET1K_V1.url
    on_disk = Path(torch.hub.get_dir()) / "checkpoints" / Path(url).name
    with contextlib.suppress(Exception):  # a damaged file fails in as many ways as there are readers
        return read_features(on_disk)
    if reachable(url):
        with contextlib.suppress(Exception), stall_limit(STALL_SECONDS):  # a filter may answer in the hub's place
            on_disk.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(on_disk), HASH_IN_NAME.findall(url)[0], progress=False)
            return read_features(on_disk)
    return carried_features()


def read_features(file: Path) -> Features:
    """The convolutions in torchvision's own file of AlexNet."""
    return convolutions(torch.load(file, map_location="cpu", weights_only=True))


def convolutions(state: dict[str, Tensor]) -> Features:
    """Those of torchvision's AlexNet, by its state."""
    return [(state[f"features.{n}.weight"], state[f"features.{n}.bias"]) for n in CONVOLUTIONS]


def carried_features() -> Features:
    """The convolutions in the package that carries them."""
    arrays = read_arrays(fetch(LPIPS_ALEXNET))["AlexNet_0"]
    layers = [arrays[f"Conv_{n}"] for n in range(5)]  # kernels are (H, W, in, out)
    kernels, biases = ([torch.from_numpy(layer[key].copy()) for layer in layers] for key in ("kernel", "bias"))
    return [(kernel.permute(3, 2, 0, 1), bias) for kernel, bias in zip(kernels, biases, strict=True)]
