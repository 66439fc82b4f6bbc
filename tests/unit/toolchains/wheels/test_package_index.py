"""What a package index answers, and the lock of what was chosen from it."""

from __future__ import annotations

import errno
import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.project.matrix import matrix_entries
from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.toolchains.wheels.frameworks import TVM_FFI_PROJECT
from kbuild.toolchains.wheels.lock import LockedRelease, LockedWheel, ToolchainLock, packaged_lock
from kbuild.toolchains.wheels.package_index import (
    FetchedWheel,
    PackageIndex,
    UnreachableIndexError,
    WheelFetcher,
)
from kbuild.toolchains.wheels.settings import IndexSettings
from kbuild.toolchains.wheels.wheel_file import Wheel
from tests.support.wheel_index import make_wheel, pinned, serve

BIG = os.urandom(1 << 20)
MEMBERS = {
    "torch/include/a.h": b"// a\n",
    "torch/include/b/b.h": b"// b\n" * 100,
    "torch/lib/libtorch_cuda.so": BIG,
    "torch/version.py": b"__version__ = '2.14.1'\n",
}


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "shelf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "entry" / "root"
    target.mkdir(parents=True)
    return target


def headers(name: str) -> str | None:
    return name if name.startswith("torch/include/") or name == "torch/version.py" else None


def unpack(settings: IndexSettings, wheels: tuple[LockedWheel, ...], folder: Path) -> FetchedWheel:
    with PackageIndex(settings) as index:
        return WheelFetcher(index).unpack(wheels, folder, headers)


def written(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


WANTED = {name: data for name, data in MEMBERS.items() if headers(name)}


def test_only_the_ranges_that_are_needed(shelf: Path, folder: Path) -> None:
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    with serve(shelf) as served:
        done = unpack(served.settings, (wheel,), folder)
        assert served.whole() == []
        assert 1 < len(served.ranges()) < 6
    assert written(folder) == WANTED
    assert done.how == "ranges"
    assert done.fetched < len(BIG) / 4
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("drops", [2, 3])
def test_broken_connection_is_tried_again(shelf: Path, folder: Path, drops: int) -> None:
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    with serve(shelf) as served:
        served.drops = drops
        if drops < 3:
            assert unpack(served.settings, (wheel,), folder).how == "ranges"
            assert written(folder) == WANTED
        else:
            with pytest.raises(ToolchainError, match="cannot be fetched"):
                unpack(served.settings, (wheel,), folder)


def test_whole_wheel_from_an_index_without_ranges(shelf: Path, folder: Path) -> None:
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    with serve(shelf, ranges=False) as served:
        done = unpack(served.settings, (wheel,), folder)
        assert len(served.whole()) == 1
    assert written(folder) == WANTED
    assert (done.how, done.fetched) == ("whole", wheel.size)


def test_local_file_goes_first(shelf: Path, folder: Path, tmp_path: Path) -> None:
    remote = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    house = tmp_path / "wheelhouse"
    local = pinned(make_wheel(house, "torch", "2.14.1+cpu", MEMBERS), record=False)
    with serve(shelf) as served:
        settings = replace(served.settings, find_links=(str(house),))
        done = unpack(settings, (remote, local), folder)
    assert done.filename == local.filename
    assert (done.how, done.fetched) == ("local", 0)
    assert written(folder) == WANTED


@pytest.mark.parametrize("ranges", [True, False])
def test_other_file_under_the_same_name(shelf: Path, folder: Path, ranges: bool) -> None:
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    make_wheel(shelf, "torch", "2.14.1", {**MEMBERS, "torch/include/a.h": b"// evil\n"})
    wheel = replace(wheel, size=pinned(shelf / wheel.filename).size)
    expected = "not the RECORD that the lock names" if ranges else "not the file that the lock"
    with serve(shelf, ranges=ranges) as served, pytest.raises(ToolchainError, match=expected):
        unpack(served.settings, (wheel,), folder)


def test_member_that_record_does_not_vouch_for(shelf: Path, folder: Path) -> None:
    lie = {"torch/include/a.h": b"// x\n"}
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS, lie=lie))
    with serve(shelf) as served, pytest.raises(ToolchainError, match="not the one in RECORD"):
        unpack(served.settings, (wheel,), folder)


def test_index_that_does_not_answer(shelf: Path, folder: Path) -> None:
    wheel = pinned(make_wheel(shelf, "torch", "2.14.1", MEMBERS))
    with serve(shelf) as served:
        settings = served.settings
    with pytest.raises(ToolchainError, match="cannot be queried for torch"):
        unpack(settings, (wheel,), folder)


def test_what_is_missing_is_told_at_once() -> None:
    """With one command that gets all of it where there is a network."""
    cuda, torch = (
        UnreachableIndexError("nobody answers", {what: pins}, instead)
        for what, pins, instead in (
            ("CUDA 13.0", ("nvcc==13.0.88", "cccl==13.0.1"), ("install it",)),
            ("Torch 2.11.0", ("torch==2.11.0",), ()),
        )
    )
    error = cuda + torch
    assert error.message == "CUDA 13.0 and Torch 2.11.0 are not on this machine, and nobody answers"
    command = "pip download --no-deps -d wheelhouse nvcc==13.0.88 cccl==13.0.1 \\\n"
    assert command in error.hint
    assert "torch==2.11.0" in error.hint
    assert error.hint.startswith("install it; or\n")


def test_no_room_for_what_is_fetched_is_no_damaged_wheel() -> None:
    class Full(io.BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    wheel = LockedWheel("torch-2.9.0-py3-none-any.whl", "0" * 64, 1)
    with pytest.raises(OSError, match="No space left"):
        Wheel(wheel, Full(b"x" * 100))
    with pytest.raises(DamagedFileError, match="not a zip file"):
        Wheel(wheel, io.BytesIO(b"x" * 100))


SHA256 = re.compile(r"[0-9a-f]{64}")


def test_packaged_lock_has_every_torch_of_the_matrix() -> None:
    lock = packaged_lock()
    assert {str(entry.torch) for entry in matrix_entries()} <= set(lock.torch)
    for release, torch in lock.torch.items():
        assert torch.version.startswith(f"{release}.")
        assert torch.wheels[0].record
        assert {wheel.version.split("+")[0] for wheel in torch.wheels} == {torch.version}


def test_packaged_lock_has_every_tvm_ffi_of_the_matrix() -> None:
    lock = packaged_lock()
    wanted = {str(entry.tvm_ffi) for entry in matrix_entries() if entry.tvm_ffi}
    assert wanted == set(lock.tvm_ffi)
    for release, locked in lock.tvm_ffi.items():
        assert locked.version.startswith(f"{release}.")
        assert SHA256.fullmatch(locked.wheels[0].record or "")
        assert {wheel.project for wheel in locked.wheels} == {TVM_FFI_PROJECT}
        assert lock.pinned[f"tvm-ffi-{release}"] == locked.version


def test_exact_and_oldest_release() -> None:
    wheel = LockedWheel("torch-2.9.0-py3-none-any.whl", "0" * 64, 1)
    releases = {name: LockedRelease(f"{name}.0", (wheel,)) for name in ("2.9", "2.10", "2.11")}
    lock = ToolchainLock({}, releases)
    assert lock.torch_for("2.10", exact=True) == releases["2.10"]
    assert lock.torch_for("2.8", exact=True) is None
    assert lock.torch_for("2.8", exact=False) == releases["2.9"]
    assert lock.torch_for("2.10", exact=False) == releases["2.10"]
    assert lock.torch_for("2.12", exact=False) is None
