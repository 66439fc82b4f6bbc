"""Wheels and Debian packages that want more than their place: room, memory, other folders."""

from __future__ import annotations

import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.plugins.debian.packages import unpack_deb
from kbuild.system.errors import DamagedFileError, StorageError
from kbuild.system.untrusted import UnpackLimit
from kbuild.toolchains.wheels import wheel_file
from kbuild.toolchains.wheels.lock import LockedWheel
from kbuild.toolchains.wheels.wheel_file import Wheel
from tests.support.debian_packages import odd_deb

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


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"./{name}")
    info.type, info.linkname, info.mode = kind, link, 0o4755
    return info


class TestDebianPackages:
    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        (tmp_path / "outside").mkdir()
        return tmp_path / "to"

    def unpack(self, target: Path, *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]):
        deb = target.with_name("odd.deb")
        deb.write_bytes(odd_deb(*members))
        unpack_deb(deb, target, lambda path: path)

    def refused(self, target: Path, *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]):
        with pytest.raises(DamagedFileError) as caught:
            self.unpack(target, *members)
        assert list((target.parent / "outside").iterdir()) == []
        return caught.value.message

    def test_links_are_those_of_a_system_of_its_own(self, target: Path) -> None:
        self.unpack(
            target,
            (member("usr/bin/tool"), b"run"),
            member("usr/bin/absolute", tarfile.SYMTYPE, "/usr/bin/tool"),
            member("usr/bin/above", tarfile.SYMTYPE, "../../../../../usr/bin/tool"),
            member("usr/bin/beside", tarfile.SYMTYPE, "tool"),
            member("usr/bin/same", tarfile.LNKTYPE, "./usr/bin/tool"),
        )
        for name in ("absolute", "above", "beside", "same"):
            assert (target / "usr/bin" / name).read_text() == "run"
        assert (target / "usr/bin/absolute").readlink() == Path("tool")
        assert not (target / "usr/bin/same").is_symlink()
        assert (target / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755

    def test_a_file_behind_a_link_that_leads_out(self, target: Path, tmp_path: Path) -> None:
        """However many links it takes."""
        target.mkdir()
        (target / "out").symlink_to(tmp_path / "outside")
        words = self.refused(target, (member("out/file"), b"x"))
        assert "`./out/file`: it lies behind a link that leads out" in words
        words = self.refused(
            target,
            member("p/q/r", tarfile.SYMTYPE, "../.."),
            member("p/q/r/l", tarfile.SYMTYPE, "../outside"),
            (member("l/file"), b"x"),
        )
        assert "`./l/file`: it lies behind a file, or behind a link that leads nowhere" in words
        assert (target / "l").readlink() == Path("p/q/outside")

    def test_a_file_in_place_of_a_link_of_another_package(
        self, target: Path, tmp_path: Path
    ) -> None:
        target.mkdir()
        (target / "file").symlink_to(tmp_path / "outside" / "file")
        self.unpack(target, (member("file"), b"x"))
        assert (target / "file").read_text() == "x"
        assert list((tmp_path / "outside").iterdir()) == []

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            (tarfile.FIFOTYPE, "it is neither a file nor a link"),
            (tarfile.CHRTYPE, "it is neither a file nor a link"),
            (tarfile.GNUTYPE_SPARSE, "it is neither a file nor a link"),
            (tarfile.LNKTYPE, "it is another name of `/etc/passwd`, which is not unpacked"),
        ],
    )
    def test_what_is_no_file(self, target: Path, kind: bytes, words: str) -> None:
        assert words in self.refused(target, member("odd", kind, "/etc/passwd"))

    def test_a_member_that_is_there_twice(self, target: Path) -> None:
        twice = ((member("a"), b"1"), (member("a"), b"2"))
        assert "it is there twice" in self.refused(target, *twice)

    @pytest.mark.usefixtures("small")
    def test_a_bomb(self, target: Path) -> None:
        """Of a member that nobody wants, too."""
        words = self.refused(target, (member("zeros"), bytes(8 << 20)))
        assert (
            "odd.deb: `data.tar.xz`: with it, the archive would unpack to more than 1 MB" in words
        )
