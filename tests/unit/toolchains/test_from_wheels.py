from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.toolchains import from_wheels
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.wheels.package_index import UnreachableIndexError
from tests.support.toolkit_wheels import FOR_DEVICES, TORCH_MEMBERS, fill
from tests.support.wheel_index import Served, make_wheel, pinned, serve

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler for link stubs"),
]
CPU = Requirements("cpu", torch="2.14", system="x86_64-linux")
TVM_FFI = Requirements("cpu", tvm_ffi="0.1", system="x86_64-linux")
CUDA = Requirements("cuda", torch="2.14", toolkit="13.0", system="x86_64-linux")


@dataclass(frozen=True)
class WheelMachine:
    """Wheels, the index that has them, and a toolchain source."""

    wheels: WheelToolchains
    served: Served
    shelf: Path

    @property
    def cache(self) -> Path:
        return self.wheels.cache


@pytest.fixture(autouse=True)
def x86_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_wheels, "host_system", lambda: System("x86_64", "linux"))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[WheelMachine]:
    shelf = tmp_path / "shelf"
    lock = fill(shelf)
    with serve(shelf) as served:
        wheels = WheelToolchains(
            LocalRunner(), tmp_path / "cache", lock=lock, settings=served.settings
        )
        yield WheelMachine(wheels, served, shelf)


def test_cuda_prefix(machine: WheelMachine) -> None:
    root = machine.wheels.installer.cuda("13.0").root
    assert os.access(root / "bin" / "nvcc", os.X_OK)
    assert os.access(root / "nvvm" / "bin" / "cicc", os.X_OK)
    assert (root / "lib64").readlink() == Path("lib")
    assert (root / "targets/x86_64-linux/include/cuda_runtime.h").is_file()
    assert (root / "lib/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (root / "lib/libcudart.so").read_bytes() == b"cudart"
    assert (root / "nvvm/lib64/libnvvm.so").read_bytes() == b"nvvm"
    assert not list(root.rglob("__init__.py"))


def test_facts_of_tvm_ffi(machine: WheelMachine) -> None:
    toolchain = machine.wheels.provision(TVM_FFI)
    facts = dict(toolchain.cache)
    assert Path(facts["KBUILD_TVM_FFI_INCLUDE_DIRS"], "tvm/ffi/tvm_ffi.h").is_file()
    assert Path(facts["KBUILD_TVM_FFI_LIBRARY_DIR"], "libtvm_ffi.so").is_file()
    assert "KBUILD_TORCH_VERSION" not in facts
    assert ("apache-tvm-ffi", "0.1.15.post2") in toolchain.versions
    assert ("apache-tvm-ffi", "0.1.15.post2") not in toolchain.compilers
    assert ("apache-tvm-ffi", "0.1.15.post2") in machine.wheels.preview(TVM_FFI).versions
    machine.served.requests.clear()
    shutil.rmtree(machine.shelf)
    assert replace(machine.wheels).provision(TVM_FFI).cache == toolchain.cache
    assert machine.served.requests == []


def test_another_wheel_than_the_pinned_one_is_refused(machine: WheelMachine) -> None:
    (wheel,) = machine.shelf.glob("apache_tvm_ffi-*")
    tag = wheel.stem.partition("post2-")[2]
    changed = {"tvm_ffi/include/tvm/ffi/c_api.h": b"int TVMFFIOther();\n"}
    make_wheel(machine.shelf, "apache-tvm-ffi", "0.1.15.post2", changed, tag=tag)
    with pytest.raises(ToolchainError, match="apache_tvm_ffi"):
        machine.wheels.provision(TVM_FFI)
    assert machine.wheels.store.entries() == ()


@pytest.fixture
def two_builds(machine: WheelMachine) -> WheelToolchains:
    """The index has a wheel for the CPU as well, on this machine even."""
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    members = {name: data for name, data in TORCH_MEMBERS.items() if name != FOR_DEVICES}
    for_cpu = pinned(make_wheel(machine.shelf, "torch", "2.14.1+cpu", members, tag=tag))
    locked = machine.wheels.lock.torch["2.14"]
    both = replace(locked, wheels=(*locked.wheels, for_cpu))
    local = machine.shelf.parent / "local"
    local.mkdir()
    shutil.copy(machine.shelf / for_cpu.filename, local)
    settings = replace(machine.served.settings, find_links=(str(local),))
    return replace(
        machine.wheels, lock=replace(machine.wheels.lock, torch={"2.14": both}), settings=settings
    )


def test_headers_do_not_depend_on_which_wheels_there_are(
    machine: WheelMachine, two_builds: WheelToolchains
) -> None:
    for requires in (CPU, CUDA):
        alone = dict(machine.wheels.provision(requires).cache)["KBUILD_TORCH_INCLUDE_DIRS"]
        beside = dict(two_builds.provision(requires).cache)["KBUILD_TORCH_INCLUDE_DIRS"]
        assert alone == beside
        assert (Path(alone.partition(";")[0]) / "THC/THCAtomics.cuh").is_file()


def test_a_wheel_for_the_cpu_serves_no_device(
    machine: WheelMachine, two_builds: WheelToolchains
) -> None:
    for path in machine.shelf.glob("torch-2.14.1-*"):
        path.unlink()
    what = r"of Torch 2\.14\.1 the package index has only torch-2\.14\.1\+cpu-.* lacks headers"
    with pytest.raises(ToolchainError, match=what) as caught:
        two_builds.provision(CUDA)
    assert "torch-2.14.1-cp311-cp311" in caught.value.hint
    toolchain = two_builds.provision(CPU)
    assert ("torch", "2.14.1") in toolchain.versions
    with pytest.raises(ToolchainError, match=what):
        two_builds.provision(CUDA)
    assert two_builds.provision(CPU).cache == toolchain.cache


def test_a_wheel_with_other_headers_than_the_lock_names(machine: WheelMachine) -> None:
    members = {**TORCH_MEMBERS, FOR_DEVICES: b"// another\n"}
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    other = pinned(make_wheel(machine.shelf, "torch", "2.14.1", members, tag=tag))
    locked = replace(machine.wheels.lock.torch["2.14"], wheels=(other,))
    lock = replace(machine.wheels.lock, torch={"2.14": locked})
    with pytest.raises(ToolchainError, match=r"cp312.* has other headers than the lock names"):
        replace(machine.wheels, lock=lock).provision(CPU)
    assert not any(entry.kind == "torch" for entry in machine.wheels.store.entries())


def test_facts_of_cuda(machine: WheelMachine) -> None:
    toolchain = machine.wheels.provision(CUDA)
    facts, versions = dict(toolchain.cache), dict(toolchain.versions)
    home = facts["CUDAToolkit_ROOT"]
    assert facts["CMAKE_CUDA_COMPILER"] == f"{home}/bin/nvcc"
    assert facts["CMAKE_CUDA_HOST_COMPILER"] == facts["CMAKE_CXX_COMPILER"]
    assert toolchain.env["CUDA_HOME"] == home
    assert facts["KBUILD_TORCH_VERSION"] == "2.14.1"
    assert facts["KBUILD_TORCH_LIBRARY_DIR"].endswith("/root/link")
    assert Path(facts["KBUILD_TORCH_INCLUDE_DIRS"].split(";")[0], "torch/library.h").is_file()
    assert versions["cuda"] == "13.0.3.0"
    assert versions["nvcc"] == "13.0.88"
    assert versions["torch"] == "2.14.1"


def test_environment_of_nvcc_is_clean(
    machine: WheelMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-lineinfo")
    monkeypatch.setenv("CUDA_HOME", "/somewhere/else")
    env = machine.wheels.provision(CUDA).env
    assert "NVCC_APPEND_FLAGS" not in env
    assert env["CUDA_HOME"] != "/somewhere/else"
    assert "CUDA_HOME" not in machine.wheels.provision(CPU).env


def test_fingerprint_forgets_where_the_store_is(machine: WheelMachine, tmp_path: Path) -> None:
    here = machine.wheels.provision(CUDA)
    there = replace(machine.wheels, cache=tmp_path / "elsewhere").provision(CUDA)
    assert here.cache != there.cache
    assert here.fingerprint == there.fingerprint


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        (replace(CPU, system="aarch64-linux"), "needs aarch64-linux"),
        (replace(CPU, backend="rocm", toolkit="7.1"), "needs a rocm compiler"),
        (replace(CUDA, toolkit="12.6"), "have no nvcc; install that toolkit and set CUDA_HOME"),
        (replace(CUDA, toolkit="13.9"), "needs CUDA 13.9: pinned are 13.0"),
        (replace(CPU, torch="2.9"), "needs Torch 2.9; the lock pins 2.14"),
        (replace(CPU, torch="2.15", torch_exact=False), "needs Torch 2.15 or newer"),
        (replace(CPU, libraries=("cutlass_3_6",)), "needs the headers of cutlass_3_6"),
        (replace(CPU, tvm_ffi="0.2"), "needs apache-tvm-ffi 0.2; the lock pins 0.1"),
    ],
)
def test_refusals(machine: WheelMachine, requires: Requirements, reason: str) -> None:
    assert reason in (machine.wheels.unsupported_reason(requires) or "")
    with pytest.raises(ToolchainError, match="does not fit"):
        machine.wheels.provision(requires)
    assert machine.served.requests == []


def test_without_a_network_all_that_is_missing_is_named(machine: WheelMachine) -> None:
    with serve(machine.shelf) as served:
        silent = replace(machine.wheels, settings=served.settings)
    with pytest.raises(UnreachableIndexError) as caught:
        silent.provision(CUDA)
    assert [*caught.value.missing] == ["CUDA 13.0", "Torch 2.14.1"]
    assert "set CUDA_HOME" in caught.value.hint
