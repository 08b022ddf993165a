"""PSIM = 1 − LPIPS(AlexNet): perceptual similarity, with the weights from wherever this machine can have them."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import lpips
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models import AlexNet_Weights

from datamodules.assets import LPIPS_ALEXNET, AssetError, fetch, read_arrays
from datamodules.torchvision_sets import reachable

LEAST_SIZE = 64  # AlexNet's feature maps vanish on smaller images
CONVOLUTIONS = (0, 3, 6, 8, 10)  # where torchvision's AlexNet has them


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


@functools.cache
def perceptual_network() -> lpips.LPIPS:
    """LPIPS with AlexNet: its features from torch's hub cache, from the hub, or from a package that carries them.

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


def alexnet_features() -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of AlexNet's five convolutions, trained on ImageNet."""
    url = AlexNet_Weights.IMAGENET1K_V1.url
    on_disk = Path(torch.hub.get_dir()) / "checkpoints" / Path(url).name
    if on_disk.is_file() or reachable(url):
        try:
            state = torch.hub.load_state_dict_from_url(url, progress=False, check_hash=True, weights_only=True)
            return [(state[f"features.{n}.weight"], state[f"features.{n}.bias"]) for n in CONVOLUTIONS]
        except (OSError, RuntimeError) as error:
            raise AssetError(f"AlexNet's weights in {on_disk} cannot be read ({error}); remove the file") from error
    arrays = read_arrays(fetch(LPIPS_ALEXNET))["AlexNet_0"]
    layers = [arrays[f"Conv_{n}"] for n in range(5)]  # kernels are (H, W, in, out)
    kernels, biases = ([torch.from_numpy(layer[key].copy()) for layer in layers] for key in ("kernel", "bias"))
    return [(kernel.permute(3, 2, 0, 1), bias) for kernel, bias in zip(kernels, biases, strict=True)]
