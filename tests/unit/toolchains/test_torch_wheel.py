from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.project.identity import Identity
from kbuild.project.variant import System
from kbuild.system.errors import DamagedFileError, ToolchainError, UsageError
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.torch_wheel import open_wheel
from tests.support.projects import BINDING, kernel
from tests.support.toolkit_wheels import fill
from tests.support.torch_wheels import opened, torch_wheel, version_file

SYSTEM = "x86_64-linux"


@pytest.fixture(autouse=True)
def on_x86(monkeypatch) -> None:
    for module in ("torch_wheel", "host"):
        monkeypatch.setattr(f"kbuild.toolchains.{module}.host_system", lambda: System.parse(SYSTEM))


def look(path: Path, cache: Path):
    return open_wheel(path, cache, LocalRunner())


def needs(backend: str, toolkit: str | None, torch: str = "2.13", *, exact: bool = True):
    return Requirements(backend, torch, exact, toolkit, system=SYSTEM)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.13.0+rocm7.1", "Torch 2.13 for rocm 7.1"),
        ("2.13.0+cu126", "Torch 2.13 for cuda 12.6"),
        ("2.13.0+xpu", "Torch 2.13 for xpu 2025.3"),
        ("2.13.1+cpu", "Torch 2.13 for cpu"),
        ("2.16.0.dev20261110+cpu", "Torch 2.16 for cpu"),
    ],
)
def test_a_wheel_says_what_it_is(tmp_path, version, words):
    assert str(opened(tmp_path, version)) == words


def test_the_file_name_is_not_asked(tmp_path):
    renamed = torch_wheel(tmp_path).rename(tmp_path / "mine.zip")
    assert str(look(renamed, tmp_path)) == "Torch 2.13 for rocm 7.1"


class TestFitting:
    @pytest.mark.parametrize(
        ("version", "requires", "fits"),
        [
            ("2.13.0+rocm7.1", needs("rocm", "7.1"), True),
            ("2.13.0+rocm7.1", needs("rocm", "7.2"), False),
            ("2.13.0+rocm7.1", needs("rocm", "7.1", "2.12"), False),
            ("2.13.0+rocm7.1", needs("rocm", "7.1", "2.12", exact=False), True),
            ("2.13.0+rocm7.1", needs("rocm", "7.1", "2.14", exact=False), False),
            ("2.13.0+rocm7.1", needs("cpu", None), False),
            ("2.13.0+cu126", needs("cuda", "12.6"), True),
            ("2.13.0+cu126", needs("cuda", "13.0"), False),
            ("2.13.0+xpu", needs("xpu", "2025.3.2"), True),
            ("2.13.0+xpu", needs("xpu", "2026.0.0"), False),
            ("2.13.0+cpu", needs("cpu", None), True),
            ("2.13.0+cpu", replace(needs("cpu", None), system="aarch64-linux"), False),
            ("2.13.0+cpu", Requirements("cpu", tvm_ffi="0.1", system=SYSTEM), False),
        ],
    )
    def test_release_and_backend_decide(self, tmp_path, version, requires, fits):
        assert opened(tmp_path, version).fits(requires) is fits


class TestRefusals:
    def refused(self, path: Path, cache: Path) -> str:
        with pytest.raises((ToolchainError, DamagedFileError)) as caught:
            look(path, cache)
        return caught.value.message

    def test_no_file(self, tmp_path):
        assert "missing.whl` is not a file" in self.refused(tmp_path / "missing.whl", tmp_path)

    def test_a_file_that_is_no_wheel(self, tmp_path):
        (tmp_path / "a.whl").write_bytes(b"\x7fELF" * 100)
        words = "`a.whl` is not a wheel that can be read: File is not a zip file"
        assert self.refused(tmp_path / "a.whl", tmp_path) == words

    def test_another_project(self, tmp_path):
        path = torch_wheel(tmp_path, members={})
        stripped = tmp_path / "numpy.whl"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(stripped, "w") as new:
            for name in old.namelist():
                if not name.startswith("torch/"):
                    new.writestr(name, old.read(name))
        assert "numpy.whl is not a wheel of Torch" in self.refused(stripped, tmp_path)

    @pytest.mark.parametrize(
        ("tag", "words"),
        [
            ("cp312-cp312-manylinux_2_28_aarch64", "is for aarch64-linux; this machine is x86_64"),
            ("cp312-cp312-win_amd64", "is for x86_64-windows; this machine is x86_64-linux"),
            ("cp312-none-macosx_11_0_arm64", "is for aarch64-darwin; this machine is x86_64"),
            ("pp310-pypy310_pp73-linux_x86_64", "is for Python `pp310`; kernels are built for"),
            ("cp38-cp38-linux_x86_64", "is for Python `cp38`; kernels are built for CPython 3.9"),
            ("cp312-cp312-wasm32", "is for `wasm32`, which kbuild does not know"),
        ],
    )
    def test_another_machine_or_python(self, tmp_path, tag, words):
        assert words in self.refused(torch_wheel(tmp_path, tag=tag), tmp_path)

    def test_any_cpython_serves(self, tmp_path):
        for tag in ("cp39-cp39-linux_x86_64", "cp314-cp314t-manylinux_2_28_x86_64"):
            assert look(torch_wheel(tmp_path, tag=tag), tmp_path).backend == "rocm"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (version_file("2.13.0+rocm7.1"), "contradicts itself: the version is 2.13.0+rocm7.1"),
            (
                version_file("2.13.0+cpu", cuda="13.0"),
                "the version is 2.13.0+cpu, and cuda is 13.0",
            ),
            (b"def (", "torch/version.py names no version of Torch"),
            (b"cuda = None\n", "torch/version.py names no version of Torch"),
        ],
    )
    def test_a_strange_version_file(self, tmp_path, text, words):
        path = torch_wheel(tmp_path, members={"torch/version.py": text})
        assert words in self.refused(path, tmp_path)


class TestRemembering:
    def test_another_file_of_the_same_size_and_time_is_looked_into(self, tmp_path):
        path = torch_wheel(tmp_path)
        look(path, tmp_path)
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(DamagedFileError, match="zip"):
            look(path, tmp_path)


@pytest.mark.compile
class TestUnpacking:
    def test_headers_cmake_hipify_and_stubs_come_to_the_store(self, tmp_path):
        wheel = opened(tmp_path)
        entry = wheel.provide()
        assert entry.name.startswith("torch-2.13.0+rocm7.1-")
        for name in (
            "include/torch/library.h", "share/cmake/Torch/TorchConfig.cmake", "version.py",
            "utils/hipify/hipify_python.py", "lib/libc10_hip.so",
        ):  # fmt: skip
            assert (entry.root / "torch" / name).is_file()
        assert not (entry.root / "torch/lib/libtorch_cpu.so").exists()
        stubs = {path.name for path in Path(wheel.facts["library_dir"]).iterdir()}
        assert {"libtorch_hip.so", "libc10_hip.so", "libtorch_xpu.so", "libtorch.so"} <= stubs
        (source,) = entry.facts["sources"]
        assert (source["filename"], source["sha256"]) == (wheel.name, wheel.metadata["sha256"])

    def test_a_damaged_member_is_found(self, tmp_path):
        path = torch_wheel(tmp_path, lie={"torch/include/torch/library.h": b"#pragma twice\n"})
        with pytest.raises(ToolchainError, match=r"torch/library\.h`: its SHA-256 is not the one"):
            look(path, tmp_path / "cache").provide()
        assert not (tmp_path / "cache/store" / look(path, tmp_path / "cache").recipe.name).exists()


@pytest.mark.compile
class TestToolchains:
    def test_the_host_builds_against_it(self, tmp_path):
        wheel = opened(tmp_path, "2.12.1+cpu")
        host = HostToolchains(LocalRunner(), FactCache(tmp_path / "cache"), torch_wheel=wheel)
        made = host.provision(needs("cpu", None, "2.12"))
        entries = dict(made.cache)
        assert entries["KBUILD_TORCH_VERSION"] == "2.12.1+cpu"
        assert Path(entries["KBUILD_TORCH_LIBRARY_DIR"], "libtorch_cpu.so").is_file()
        assert (
            dict(made.versions)["torch-wheel"] == f"{wheel.name} sha256:{wheel.metadata['sha256']}"
        )
        assert "torch-wheel" not in dict(made.compilers)
        assert "no release of Torch" not in " ".join(made.notes)

    def test_a_nightly_is_told(self, tmp_path):
        wheel = opened(tmp_path, "2.15.0.dev20261110+cpu")
        host = HostToolchains(LocalRunner(), FactCache(tmp_path / "cache"), torch_wheel=wheel)
        assert "is the pre-release 2.15.0.dev20261110+cpu" in " ".join(
            host.provision(needs("cpu", None, "2.15")).notes
        )

    def test_cuda_comes_from_wheels_and_torch_from_this_one(self, tmp_path):
        lock = replace(fill(tmp_path / "shelf"), torch={})
        wheel = opened(tmp_path, "2.13.0+cu130")
        source = WheelToolchains(LocalRunner(), tmp_path / "cache", lock=lock, torch_wheel=wheel)
        requires = needs("cuda", "13.0")
        assert replace(source, torch_wheel=None).unsupported_reason(requires) == (
            "needs Torch 2.13; the lock pins "
        )
        assert source.unsupported_reason(requires) is None
        record = dict(source.preview(requires).versions)
        assert (record["torch"], record["cuda"]) == ("2.13.0+cu130", "13.0")
        assert record["torch-wheel"].startswith(wheel.name)


class TestPipeline:
    def test_outside_the_matrix(self, tmp_path):
        from kbuild.toolchains.torch_wheel import open_torch_wheels

        for version, words in (
            ("2.16.0.dev20261110+cpu", "is Torch 2.16 for cpu, which is not in kbuild's matrix"),
            ("2.14.0+rocm7.1", "it has rocm with Torch 2.11, 2.12, 2.13"),
        ):
            with pytest.raises(ToolchainError) as caught:
                open_torch_wheels([torch_wheel(tmp_path, version)], tmp_path, LocalRunner())
            assert words in caught.value.message
        wheel = torch_wheel(tmp_path, "2.13.0+xpu")
        with pytest.raises(ToolchainError, match=r"it has xpu with Torch 2\.11, 2\.12"):
            open_torch_wheels([wheel], tmp_path, LocalRunner())

    def test_a_wheel_for_none_of_the_variants(self, tmp_path, project):
        from kbuild.plan.selection import Selection
        from kbuild.plan.variant import Planner
        from kbuild.system.sourcetree import SourceTree
        from kbuild.toolchains.torch_wheel import open_torch_wheels, validate_wheels_are_used

        (wheel,) = open_torch_wheels(
            [torch_wheel(tmp_path, "2.13.0+cu126")], tmp_path, LocalRunner()
        )
        identity = Identity("0000000")
        made = project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))
        chosen = Selection(globs=("torch213-*-cpu-x86_64-linux",))
        planner = Planner(made, SourceTree(made.root), LocalRunner(), identity)
        plans = planner.select(chosen)
        with pytest.raises(UsageError) as caught:
            validate_wheels_are_used([wheel], plans)
        assert caught.value.message == (
            f"{wheel.name} is Torch 2.13 for cuda 12.6, which none of the chosen variants is "
            "built against: torch213-cxx11-cpu-x86_64-linux"
        )
        both = Selection(globs=("torch213-*-cpu-x86_64-linux", "torch213-*-cu126-x86_64-linux"))
        validate_wheels_are_used([wheel], planner.select(both))
