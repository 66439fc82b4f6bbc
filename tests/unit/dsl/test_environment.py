"""Environments of pinned wheels, from an index on this machine."""

from __future__ import annotations

import errno
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.dsl.environment import DslEnvironments
from kbuild.system import readonly_tree
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import Store
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.lock import LockedToolkit, ToolchainLock
from kbuild.toolchains.wheels.settings import IndexSettings
from tests.support.wheel_index import make_wheel, pinned, serve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
BIN = "triton/backends/nvidia/bin"
OWN = f"cp{sys.version_info.major}{sys.version_info.minor}"
TAG = f"{OWN}-{OWN}-manylinux_2_17_x86_64"
PIN = ("triton==3.9.0",)


def ptxas(version: str) -> bytes:
    return f"#!/bin/sh\necho 'Cuda compilation tools, V{version}'\n".encode()


MEMBERS = {
    "triton/__init__.py": b"VALUE = 3\n",
    f"{BIN}/ptxas": ptxas("12.9.86"),
    f"{BIN}/ptxas-blackwell": ptxas("13.4.59"),
    "triton-3.9.0.data/scripts/proton": b"#!python\n",
    "triton-3.9.0.data/purelib/more.py": b"VALUE = 4\n",
}


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    make_wheel(folder, "triton", "3.9.0", MEMBERS, tag=TAG)
    make_wheel(folder, "triton", "3.9.0", {"triton/__init__.py": b"no"}, tag="cp27-cp27m-win32")
    make_wheel(folder, "triton", "3.8.0", {"triton/__init__.py": b"no"}, tag="cp27-cp27m-win32")
    return folder


def environments(tmp_path: Path, *, links: bool = True) -> DslEnvironments:
    nvcc = make_wheel(
        tmp_path / "wheels",
        "nvidia-cuda-nvcc",
        "13.0.88",
        {"nvidia/cu13/bin/ptxas": ptxas("13.0.88"), "nvidia/cu13/bin/nvcc": b""},
    )
    lock = ToolchainLock({"13.0": LockedToolkit("13.0.3", (pinned(nvcc),), ())}, {})
    found = (str(tmp_path / "wheels"),) if links else ()
    settings = IndexSettings(find_links=found, no_index=True)
    return DslEnvironments(WheelInstaller(LocalRunner(), Store(tmp_path / "store"), lock, settings))


def test_an_environment(tmp_path, wheels):
    known = environments(tmp_path)
    entry = known.provide("triton", PIN)
    assert re.fullmatch(r"triton-3\.9\.0-[0-9a-f]{12}", entry.name)
    files = {path.relative_to(entry.root).as_posix() for path in entry.root.rglob("*")}
    assert "more.py" in files
    assert not [file for file in files if "proton" in file]
    assert entry.differences() == ()
    argv = (sys.executable, "-S", "-s", "-B", "-c")
    code = f"import sys; sys.path[0] = {str(entry.root)!r}; import triton; print(triton.__cached__)"
    done = LocalRunner().run((*argv, code), env={})
    assert Path(done.output.strip()).is_file()  # the bytecode is there
    assert known.assembler(entry, "ptxas")[1] == "12.9.86"
    path, version = known.assembler(entry, "ptxas-blackwell")
    assert version == "13.4.59"
    assert LocalRunner().run((str(path),)).output.endswith("V13.4.59\n")


def test_nothing_is_asked_for_what_is_there(tmp_path, wheels):
    entry = environments(tmp_path).provide("triton", PIN)
    assert environments(tmp_path, links=False).provide("triton", PIN).folder == entry.folder


def test_the_ptxas_of_nvcc_alone(tmp_path, wheels):
    known = environments(tmp_path)
    path, version = known.assembler(known.provide("triton", PIN), "nvcc")
    assert version == "13.0.88"
    assert [file.name for file in path.parent.iterdir()] == ["ptxas"]
    assert LocalRunner().run((str(path),)).ok
    assert environments(tmp_path, links=False).assembler(known.provide("triton", PIN), "nvcc") == (
        path,
        version,
    )


@pytest.mark.parametrize("name", ["nvcc", "cuda-13.0"])
def test_the_toolkit_of_this_machine_where_no_wheel_can_be_had(tmp_path, monkeypatch, name):
    program = "ptxas" if name == "nvcc" else "nvcc"
    toolkit = tmp_path / "toolkit" / "bin"
    toolkit.mkdir(parents=True)
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    known = environments(tmp_path, links=False)
    for release, fits in (("13.2", False), ("13.0", True)):
        for tool in ("nvcc", "ptxas"):
            text = f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.12'\n"
            (toolkit / tool).write_text(text)
            (toolkit / tool).chmod(0o755)
        if fits:
            assert known.assembler(None, name) == (toolkit / program, "13.0.12")
        else:
            with pytest.raises(ToolchainError, match="not on this machine"):
                known.assembler(None, name)


@pytest.mark.parametrize(
    ("pin", "message", "hint"),
    [
        ("triton==3.99.0", "the package index has no wheel of triton 3.99.0", "pip config list"),
        (
            "triton==3.8.0",
            r"triton 3\.8\.0 has no wheel for CPython 3\.\d+ on x86_64-linux",
            "Python",
        ),
        ("triton>=3.8", "`triton>=3.8` is not an exact pin", "name==version"),
        ("triton==3.*", r"`triton==3\.\*` is not an exact pin", "name==version"),
    ],
)
def test_what_cannot_be_had(tmp_path, wheels, pin, message, hint):
    with pytest.raises(ToolchainError, match=message) as caught:
        environments(tmp_path).provide("triton", (pin,))
    assert hint in caught.value.hint
    assert not list((tmp_path / "store").glob("triton*"))


def test_an_assembler_that_is_not_there(tmp_path):
    members = {name: data for name, data in MEMBERS.items() if "blackwell" not in name}
    make_wheel(tmp_path / "wheels", "triton", "3.9.0", members, tag=TAG)
    known = environments(tmp_path)
    with pytest.raises(ToolchainError, match="has no ptxas-blackwell"):
        known.assembler(known.provide("triton", PIN), "ptxas-blackwell")


class TestOneMorePin:
    """Wheels are unpacked once; environments are links to their files."""

    MORE = (*PIN, "einops==0.8.1")

    @pytest.fixture
    def known(self, tmp_path, wheels) -> DslEnvironments:
        make_wheel(wheels, "einops", "0.8.1", {"einops/__init__.py": b"VALUE = 5\n"})
        return environments(tmp_path)

    def test_only_its_own_wheel_is_unpacked(self, known: DslEnvironments) -> None:
        first = known.provide("triton", PIN)
        second = known.provide("triton", self.MORE)
        ways = [source["how"] for source in second.facts["sources"]]
        assert ways == ["store", "local"]
        assert second.facts["sources"][0]["sha256"] == (first.facts["sources"][0]["sha256"])
        for path in ("triton/__init__.py", f"{BIN}/ptxas"):
            assert (first.root / path).samefile(second.root / path)
        assert (second.root / "einops" / "__init__.py").is_file()
        assert second.facts["size"] == 0
        assert second.facts["linked"] > first.facts["linked"] > 0
        assert first.differences() == second.differences() == ()
        assert known.assembler(second, "ptxas")[1] == "12.9.86"

    def test_a_wheel_stays_as_long_as_what_is_made_from_it(self, known: DslEnvironments) -> None:
        first, second = (known.provide("triton", pins) for pins in (PIN, self.MORE))
        store = known.installer.store
        for entry in store.entries():
            if entry != second:
                os.utime(entry.folder / "entry.json", (0, 0))
        assert store.prune(1) == (first.name,)
        assert second.differences() == ()
        assert (second.root / "triton" / "__init__.py").read_bytes() == b"VALUE = 3\n"
        assert set(store.prune(0)) == {second.name, *(part.name for part in second.parts)}

    def test_a_part_that_somebody_deleted(self, known: DslEnvironments) -> None:
        entry = known.provide("triton", PIN)
        readonly_tree.remove_tree(entry.parts[0].folder)
        (said,) = entry.differences()
        assert said == f"`{entry.parts[0].name}`, which says what its files were, is gone"
        assert known.provide("triton", PIN) == entry

    def test_what_was_changed_in_the_store_is_not_linked(self, known: DslEnvironments) -> None:
        known.provide("triton", PIN)
        (wheel,) = known.installer.store.root.glob("wheel-triton-*")
        module = wheel / "root" / "triton" / "__init__.py"
        module.chmod(0o644)
        module.write_text("VALUE = 6\n")
        with pytest.raises(ToolchainError, match=r"wheel-triton.* has changed since .*__init__"):
            known.provide("triton", self.MORE)

    def test_a_file_system_without_hard_links(self, known, monkeypatch) -> None:
        def refused(*_: object, **_options: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr("os.link", refused)
        entry = known.provide("triton", self.MORE)
        assert entry.facts["linked"] == 0
        assert entry.differences() == ()
        assert known.assembler(entry, "ptxas")[1] == "12.9.86"

    def test_the_same_file_in_two_wheels(self, known, wheels) -> None:
        """The last wheel's is there, and no bytecode of another one's."""
        make_wheel(wheels, "one", "1.0", {"nvidia/__init__.py": b"A = 1\n", "nvidia/one.py": b""})
        make_wheel(wheels, "two", "1.0", {"nvidia/__init__.py": b"A = (\n", "nvidia/two.py": b""})
        entry = known.provide("triton", (*PIN, "one==1.0", "two==1.0"))
        names = sorted(path.name for path in (entry.root / "nvidia").glob("*.py"))
        assert names == ["__init__.py", "one.py", "two.py"]
        assert (entry.root / "nvidia" / "__init__.py").read_bytes() == b"A = (\n"
        assert not list((entry.root / "nvidia" / "__pycache__").glob("__init__*"))
        assert entry.differences() == ()

    def test_a_file_where_another_wheel_has_a_folder(self, known, wheels) -> None:
        make_wheel(wheels, "one", "1.0", {"nvidia": b""})
        make_wheel(wheels, "two", "1.0", {"nvidia/two.py": b""})
        with pytest.raises(ToolchainError, match=r"`nvidia` is a file in wheel-one.*wheel-two"):
            known.provide("triton", (*PIN, "one==1.0", "two==1.0"))

    def test_a_server_is_not_asked_again(self, known, wheels, tmp_path) -> None:
        with serve(wheels) as served:
            installer = replace(known.installer, settings=served.settings)
            DslEnvironments(installer).provide("triton", PIN)
            served.requests.clear()
            DslEnvironments(installer).provide("triton", self.MORE)
            assert {path.split("/")[2].partition("-")[0] for path, _ in served.requests} == {
                "einops"
            }
            assert [path for path, _ in served.requests if "triton" in path] == []
