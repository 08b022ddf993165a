"""Files are there as a whole or not at all, and nothing that is no file becomes one."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.errors import UserError
from sweetspot.files import ErrorKeeper, check_writable, machine, replacing, save_tensors, temporary_folder


def test_a_block_that_ends_well_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old", "until the block ends, the old file stands"
        assert temporary.suffix == ".json", "writers choose their format by the suffix"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write(path: Path, text: str = "new") -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


# ---------------------------------------------------------------------- what is no regular file


def test_a_link_keeps_leading_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "target.json", tmp_path / "link.json"
    for content in (None, "old"):  # also where it leads to a file that is yet to be made
        if content:
            target.write_text(content)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        write(link)
        assert link.is_symlink()
        assert target.read_text() == "new"
        assert list(target.parent.iterdir()) == [target]


def test_a_pipe_a_device_and_a_folder_stay_what_they_are(tmp_path: Path) -> None:
    pipe, folder, link = tmp_path / "pipe", tmp_path / "folder", tmp_path / "link"
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to("/dev/null")
    for node in (pipe, folder, link):
        for refuse in (write, lambda path: check_writable("--out", path)):
            with pytest.raises(UserError, match="no regular file"):
                refuse(node)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(tmp_path.iterdir()) == [folder, link, pipe]


def test_a_loop_of_links_and_a_name_too_long_are_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, tmp_path / ("n" * 300), Path("/proc/found.json"), tmp_path / "no" / "folder"):
        with pytest.raises(UserError, match=r"cannot be written|is not there"):
            check_writable("--out", path)
    with pytest.raises(UserError, match="cannot be written"):
        write(loop)


def test_a_name_as_long_as_names_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    write(path)
    assert list(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------------- kills


def test_what_a_killed_process_left_goes_when_the_file_is_written_next(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    body = "import os; from pathlib import Path; from sweetspot.files import replacing\n"
    body += f"with replacing(Path({str(path)!r})) as temporary: temporary.write_text('half'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", body], check=False)
    assert len(list(tmp_path.iterdir())) == 1, "a kill leaves its temporary file"
    others = [
        tmp_path / f".report.{machine()}.{os.getppid()}.tmp.html",  # of one that is still at it
        tmp_path / ".report.another-machine.999999999.tmp.html",  # whose processes we cannot see
        tmp_path / f".reports.{machine()}.999999999.tmp.html",  # of another file
        tmp_path / f".report.{machine()}.999999999.tmp.md",
    ]
    for other in others:
        other.touch()
    write(path)
    assert set(tmp_path.iterdir()) == {path, *others}


def test_temporary_folders_of_killed_processes_go_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    body = "import os, tempfile; from sweetspot.files import temporary_folder\n"
    body += f"tempfile.tempdir = {str(tmp_path)!r}\n"
    body += "with temporary_folder('tune') as folder: (folder / 'held').touch(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", body], check=False)
    (left,) = tmp_path.iterdir()
    others = [tmp_path / f"tune.{machine()}.{os.getppid()}.abc", tmp_path / "tune.another-machine.999999999.abc"]
    for other in others:
        other.mkdir()
    with temporary_folder("tune") as folder:
        assert set(tmp_path.iterdir()) == {folder, *others}
    assert not left.exists()
    assert set(tmp_path.iterdir()) == set(others)


# ---------------------------------------------------------------------- full disks and folders that go away


class SmallDisk:
    """A disk that has so many bytes left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def write(self, file: Any, data: Any) -> int:
        if len(data) > self.left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= len(data)
        return len(data)


@pytest.mark.parametrize("size", [0, 10, 500, 1000, 4000, 20_000, 39_000, 40_500])
def test_a_full_disk_is_an_os_error_and_the_old_file_stays(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.ckpt"
    save_tensors(path, {"old": torch.zeros(3)})
    disk = SmallDisk(size)

    class Full(ErrorKeeper):
        def write_part(self, data: Any) -> int:
            return disk.write(self, data)

    monkeypatch.setattr("sweetspot.files.ErrorKeeper", Full)
    with pytest.raises(OSError, match="No space left") as failed:
        save_tensors(path, {"weights": torch.zeros(10_000), "more": torch.zeros(100)})
    assert failed.value.errno == errno.ENOSPC
    assert torch.load(path)["old"].tolist() == [0, 0, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_tensors_come_back_as_they_were_saved(tmp_path: Path) -> None:
    content: dict[str, Any] = {"weights": torch.randn(1000, 100), "epoch": 3, "bits": torch.arange(5).to(torch.uint8)}
    save_tensors(tmp_path / "a.pt", content)
    found = torch.load(tmp_path / "a.pt", weights_only=True)
    assert found["epoch"] == 3
    assert all(torch.equal(found[name], content[name]) for name in ("weights", "bits"))


def test_what_cannot_be_pickled_is_our_own_bug(tmp_path: Path) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError):
        save_tensors(tmp_path / "a.pt", {"generator": numbers()})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_went_away_is_the_users_to_mend(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def write_into_nothing() -> None:
        with replacing(folder / "results.json") as temporary:
            folder.rmdir()
            temporary.write_text("new")

    with pytest.raises(UserError, match="is not there any more"):
        write_into_nothing()
    with pytest.raises(UserError, match="is not there any more"):
        save_tensors(folder / "last.ckpt", {})
