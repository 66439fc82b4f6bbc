"""Wheels that want more than their place: room, memory, other folders."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.system.errors import DamagedFileError, StorageError
from kbuild.system.untrusted import UnpackLimit
from kbuild.toolchains.wheels import wheel_file
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.wheel_file import Wheel

NAME = "odd-1.0-py3-none-any.whl"


def open_wheel(path: Path) -> Wheel:
    return Wheel(LockedWheel(NAME, "0" * 64, path.stat().st_size), path)


def refused(path: Path, target: Path) -> str:
    with pytest.raises(DamagedFileError) as caught:
        open_wheel(path).unpack(target, lambda name: name)
    return caught.value.message


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return tmp_path / NAME


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can reach."""
    monkeypatch.setattr(UnpackLimit, "LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(UnpackLimit, "MOST_TIMES", 10)


def write(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members:
            out.writestr(name, data)
    return path


class TestWheels:
    @pytest.mark.usefixtures("small")
    def test_a_bomb(self, wheel: Path, tmp_path: Path) -> None:
        write(wheel, *((f"torch/{number}.h", bytes(1 << 19)) for number in range(4)))
        words = refused(wheel, tmp_path / "to")
        assert words == f"{NAME}: `torch/2.h`: with it, the archive would unpack to more than 1 MB"
        assert not (tmp_path / "to").exists()

    def test_a_size_that_is_a_lie(self, wheel: Path, tmp_path: Path) -> None:
        write(wheel, ("odd.dist-info/RECORD", b"a.h,sha256=x,1\n"), ("a.h", bytes(5000)))
        data = bytearray(wheel.read_bytes())
        at = data.rindex(b"PK\1\2")  # the list's entry of a.h
        struct.pack_into("<L", data, at + 24, 10)
        wheel.write_bytes(data)
        (tmp_path / "to").mkdir()
        with pytest.raises(DamagedFileError, match=r"a\.h` is not a member of a wheel .*CRC-32"):
            open_wheel(wheel).unpack(tmp_path / "to", lambda name: name if name == "a.h" else None)
        assert (tmp_path / "to" / "a.h").stat().st_size <= 10

    def test_more_members_than_any_wheel_has(
        self, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(UnpackLimit, "MOST_MEMBERS", 9)
        write(wheel, *((f"{number}", b"") for number in range(10)))
        assert "there are more than 9 members" in refused(wheel, tmp_path)

    def test_a_list_of_members_that_would_fill_the_memory(
        self, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(UnpackLimit, "MOST_MEMBERS", 9)
        monkeypatch.setattr(wheel_file, "ZipFile", None)  # it must not come to that
        with zipfile.ZipFile(wheel, "w") as out:
            for number in range(30):
                out.writestr(f"{number:090}", b"")
        assert "its list of members has 0 MB" in refused(wheel, tmp_path)

    def test_a_link(self, wheel: Path, tmp_path: Path) -> None:
        info = zipfile.ZipInfo("torch/lib")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        write(wheel, (info, b"/etc"))
        assert "it is neither a file nor a folder" in refused(wheel, tmp_path)

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_a_member_that_is_there_twice(self, wheel: Path, tmp_path: Path) -> None:
        write(wheel, ("torch/a.h", b"one"), ("torch/a.h", b"two"))
        assert "it is there twice" in refused(wheel, tmp_path)

    def test_no_room(self, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(wheel, ("odd.dist-info/RECORD", b""), ("a.h", bytes(5 << 20)))
        space = SimpleNamespace(free=1 << 20)
        monkeypatch.setattr(wheel_file.shutil, "disk_usage", lambda _: space)
        with pytest.raises(StorageError, match="unpacks to 5 MB, and 1 MB are free"):
            open_wheel(wheel).unpack(tmp_path, lambda name: name)
