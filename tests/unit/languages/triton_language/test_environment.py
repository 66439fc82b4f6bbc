"""Environments of pinned wheels, from an index on this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from wheel_bench import make_wheel, pinned

from kbuild.errors import ToolchainError
from kbuild.languages.environment import Environments
from kbuild.run import LocalRunner
from kbuild.store import Store
from kbuild.toolchains.wheels.installer import Installer
from kbuild.toolchains.wheels.lock import Lock, LockedToolkit
from kbuild.toolchains.wheels.settings import IndexSettings

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


def environments(tmp_path: Path, *, links: bool = True) -> Environments:
    nvcc = make_wheel(
        tmp_path / "wheels",
        "nvidia-cuda-nvcc",
        "13.0.88",
        {"nvidia/cu13/bin/ptxas": ptxas("13.0.88"), "nvidia/cu13/bin/nvcc": b""},
    )
    lock = Lock({"13.0": LockedToolkit("13.0.3", (pinned(nvcc),), ())}, {})
    found = (str(tmp_path / "wheels"),) if links else ()
    settings = IndexSettings(find_links=found, no_index=True)
    return Environments(Installer(LocalRunner(), Store(tmp_path / "store"), lock, settings))


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


def test_the_same_bytes_wherever_the_store_is(tmp_path, wheels):
    members = []
    for name in ("a", "b"):
        known = environments(tmp_path)
        elsewhere = Installer(
            known.installer.runner, Store(tmp_path / name), known.installer.lock,
            known.installer.settings,
        )  # fmt: skip
        members.append(Environments(elsewhere).provide("triton", PIN).members)
    assert members[0] == members[1]
    assert any(name.endswith(".pyc") for name in members[0])


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


@pytest.mark.parametrize(
    ("pin", "message", "hint"),
    [
        ("triton==3.99.0", "the package index has no wheel of triton 3.99.0", "pip config list"),
        (
            "triton==3.8.0",
            r"triton 3\.8\.0 has no wheel for CPython 3\.\d+ on x86_64-linux",
            "Python",
        ),
        ("triton>=3.8", "`triton>=3.8` is no exact pin", "name==version"),
        ("triton==3.*", r"`triton==3\.\*` is no exact pin", "name==version"),
    ],
)
def test_what_cannot_be_had(tmp_path, wheels, pin, message, hint):
    with pytest.raises(ToolchainError, match=message) as caught:
        environments(tmp_path).provide("triton", (pin,))
    assert hint in caught.value.hint
    assert not list((tmp_path / "store").glob("triton*"))


def test_a_member_that_is_not_what_record_says(tmp_path):
    make_wheel(
        tmp_path / "wheels", "triton", "3.9.0", MEMBERS, tag=TAG,
        lie={"triton/__init__.py": b"VALUE = 5\n"},
    )  # fmt: skip
    with pytest.raises(ToolchainError, match="its SHA-256 is not the one in RECORD"):
        environments(tmp_path).provide("triton", PIN)


def test_a_ptxas_that_says_nothing(tmp_path):
    members = {**MEMBERS, f"{BIN}/ptxas": b"#!/bin/sh\nexit 1\n"}
    make_wheel(tmp_path / "wheels", "triton", "3.9.0", members, tag=TAG)
    with pytest.raises(ToolchainError, match="ptxas --version"):
        environments(tmp_path).provide("triton", PIN)


def test_an_assembler_that_is_not_there(tmp_path):
    members = {name: data for name, data in MEMBERS.items() if "blackwell" not in name}
    make_wheel(tmp_path / "wheels", "triton", "3.9.0", members, tag=TAG)
    known = environments(tmp_path)
    with pytest.raises(ToolchainError, match="has no ptxas-blackwell"):
        known.assembler(known.provide("triton", PIN), "ptxas-blackwell")
