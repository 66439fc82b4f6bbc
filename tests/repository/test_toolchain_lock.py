from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.toolchains.wheels.cuda import (
    CROSS_PROGRAMS,
    HEADER_LIBRARIES,
    HEADER_PROGRAMS,
    LIBRARIES,
    PROGRAMS,
)
from kbuild.toolchains.wheels.lock import LockedRelease, ToolchainLock
from kbuild.toolchains.wheels.package_index import PackageIndex, WheelFetcher
from scripts.refresh_toolchain_lock import LockRefresher
from tests.support.toolkit_wheels import TORCH_MEMBERS, fill, headers_of
from tests.support.wheel_index import make_wheel, pinned, serve

NOTHING = ToolchainLock({}, {})


def meta(shelf: Path, version: str, pin: str) -> None:
    """A release of the meta-package that wants components of version `pin`."""
    needs = "".join(
        f"Requires-Dist: {project}=={pin}.*; sys_platform == 'linux' and extra == 'all'\n"
        for project in (*PROGRAMS, *LIBRARIES, *HEADER_PROGRAMS, *HEADER_LIBRARIES)
    )
    make_wheel(shelf, "cuda-toolkit", version, {}, tag="py2.py3-none-any", metadata=needs)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    fill(tmp_path / "shelf")
    return tmp_path / "shelf"


@pytest.fixture
def refresher(shelf: Path) -> Iterator[LockRefresher]:
    with serve(shelf) as served, PackageIndex(served.settings) as index:
        yield LockRefresher(WheelFetcher(index))


def test_newest_patch_of_each_release_from_13_on(shelf: Path, refresher: LockRefresher) -> None:
    meta(shelf, "12.9.1", "12.9.86")
    meta(shelf, "13.0.2", "13.0.85")
    meta(shelf, "13.0.10", "13.0.88")
    lock = refresher.refresh(NOTHING, ())
    assert set(lock.cuda) == {"13.0"}
    assert lock.cuda["13.0"].version == "13.0.10"
    assert [wheel.project for wheel in lock.cuda["13.0"].programs] == list(PROGRAMS)
    for wheel in (*lock.cuda["13.0"].programs, *lock.cuda["13.0"].libraries):
        assert wheel == pinned(shelf / wheel.filename)


def test_headers_of_the_releases_that_have_no_compiler(
    shelf: Path, refresher: LockRefresher
) -> None:
    meta(shelf, "12.4.0", "12.4.99")
    meta(shelf, "12.4.1", "12.4.127")
    meta(shelf, "12.6.3", "12.6.85")
    lock = refresher.refresh(NOTHING, ())
    assert (set(lock.cuda), set(lock.runtimes)) == (set(), {"12.4"})
    assert lock.runtimes["12.4"].version == "12.4.1"
    assert [wheel.project for wheel in lock.runtimes["12.4"].libraries] == list(HEADER_LIBRARIES)
    assert refresher.refresh(lock, ()).runtimes == lock.runtimes


def test_torch_wheels_of_every_interpreter(shelf: Path, refresher: LockRefresher) -> None:
    tail = "manylinux_2_28_x86_64"
    for version, tag in (
        ("2.14.0", f"cp311-cp311-{tail}"),
        ("2.14.1", f"cp314-cp314t-{tail}"),
        ("2.14.1", f"cp312-cp312-{tail}"),
        ("2.14.1", "cp312-cp312-win_amd64"),
        ("2.14.1", "cp312-cp312-manylinux_2_28_aarch64"),
        ("2.14.1+cpu", f"cp311-cp311-{tail}"),
        ("2.14.2rc1", f"cp311-cp311-{tail}"),
    ):
        make_wheel(shelf, "torch", version, TORCH_MEMBERS, tag=tag)
    torch = refresher.refresh(NOTHING, ["2.14", "2.99"]).torch
    assert set(torch) == {"2.14"}
    assert torch["2.14"].version == "2.14.1"
    names = [wheel.filename for wheel in torch["2.14"].wheels]
    assert names == [
        f"torch-2.14.1-cp311-cp311-{tail}.whl",
        f"torch-2.14.1-cp312-cp312-{tail}.whl",
        f"torch-2.14.1-cp314-cp314t-{tail}.whl",
        f"torch-2.14.1+cpu-cp311-cp311-{tail}.whl",
    ]
    assert torch["2.14"].wheels[0] == pinned(shelf / names[0])
    assert torch["2.14"].headers == headers_of(TORCH_MEMBERS)


def test_tvm_ffi_of_the_named_releases(shelf: Path, refresher: LockRefresher) -> None:
    tail = "manylinux_2_24_x86_64.manylinux_2_28_x86_64"
    for version in ("0.1.14", "0.1.16", "0.2.0"):
        make_wheel(shelf, "apache-tvm-ffi", version, {}, tag=f"cp311-cp311-{tail}")
    found = refresher.refresh(NOTHING, (), ffi={"0.1", "0.9"})
    assert {name: locked.version for name, locked in found.tvm_ffi.items()} == {"0.1": "0.1.16"}
    assert found.tvm_ffi["0.1"].wheels[0].record
    assert refresher.refresh(found, ()).tvm_ffi == found.tvm_ffi


def test_wheels_of_the_same_version_stay(tmp_path: Path, refresher: LockRefresher) -> None:
    local = pinned(make_wheel(tmp_path, "torch", "2.14.1+cpu", TORCH_MEMBERS), record=False)
    old = ToolchainLock({}, {"2.14": LockedRelease("2.14.1", (local,))})
    assert refresher.refresh(old, ()).torch["2.14"].wheels[-1] == local
    older = ToolchainLock({}, {"2.14": LockedRelease("2.14.0", (local,))})
    assert local not in refresher.refresh(older, ()).torch["2.14"].wheels


def test_pins_for_another_processor(shelf: Path, refresher: LockRefresher) -> None:
    meta(shelf, "13.0.2", "13.0.88")
    tag = "py3-none-manylinux_2_28_aarch64"
    arm = "cp312-cp312-manylinux_2_28_aarch64"
    its = {**TORCH_MEMBERS, "torch/include/of_arm.h": b"#pragma once\n"}
    torch = make_wheel(shelf, "torch", "2.14.1", its, tag=arm)
    lock = refresher.refresh(NOTHING, {"2.14"})
    pins = lock.cross["aarch64"]
    assert (pins.cuda, list(pins.torch)) == ({}, ["2.14"])  # the index lacks the runtime
    assert pins.torch["2.14"].wheels == (pinned(torch),)
    assert pins.torch["2.14"].headers == headers_of(its) != lock.torch["2.14"].headers
    made = [make_wheel(shelf, project, "13.0.88", {}, tag=tag) for project in CROSS_PROGRAMS]
    with serve(shelf) as served, PackageIndex(served.settings) as index:
        pins = LockRefresher(WheelFetcher(index)).refresh(lock, ()).cross["aarch64"]
    assert pins.cuda["13.0"].programs == tuple(map(pinned, made))
    assert pins.cuda["13.0"].libraries == ()
    assert list(pins.torch) == ["2.14"]
