from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.plan.plan import Requirements
from kbuild.plugins.debian.nvcc import (
    DebianNvccToolchains,
    DebianNvccToolkits,
    DebianPackage,
    destination_of,
    fetch_package,
    find_mirror,
    pins,
)
from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256
from kbuild.system.processes import LocalRunner, ProcessResult
from kbuild.toolchains import from_wheels
from kbuild.toolchains.cuda_toolkits import CudaToolkit, CudaToolkitSource
from kbuild.toolchains.from_wheels import WheelToolchains
from tests.support.fake_machine import FakeRunner, failed
from tests.support.toolkit_wheels import fill
from tests.support.wheel_index import serve

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler for link stubs"),
]
LIB = "lib/nvidia-cuda-toolkit"
FILES = {
    f"{LIB}/bin/nvcc": "nvcc",
    f"{LIB}/bin/cicc": "cicc",
    f"{LIB}/bin/g++": "not this one",
    f"{LIB}/bin/crt/link.stub": "stub",
    f"{LIB}/libdevice/libdevice.10.bc": "bitcode",
    "bin/nvcc": "a wrapper",
    "bin/ptxas": "ptxas",
    "bin/nvdisasm": "large",
    "bin/cuobjdump": "-> ptxas",
    "share/doc/nvidia-cuda-toolkit/copyright": "End User License Agreement",
}
PROGRAMS = (f"{LIB}/bin/nvcc", f"{LIB}/bin/cicc", "bin/ptxas")


def _tar(files: dict[str, str], folder: str) -> bytes:
    """A tar archive; content `-> x` makes a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{folder}{name}")
            if content.startswith("-> "):
                info.type, info.linkname = tarfile.SYMTYPE, content[3:]
            info.mode = 0o755 if name in PROGRAMS else 0o644
            info.size = 0 if info.issym() else len(content)
            archive.addfile(info, io.BytesIO(content.encode()))
    return buffer.getvalue()


def _deb(files: dict[str, str]) -> bytes:
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _tar({"control": "Package: x\n"}, ""),
        "data.tar.xz": _tar(files, "usr/"),
    }
    parts = [b"!<arch>\n"]
    for name, data in members.items():
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
        parts.append(data + b"\n" * (len(data) % 2))
    return b"".join(parts)


DEB = _deb(FILES)
PACKAGE = DebianPackage(
    "nvidia-cuda-toolkit", "12.4.131~x", "pool/toolkit.deb", len(DEB), sha256(DEB)
)
ACCEPTED = {"KBUILD_ACCEPT_LICENSE": "other, nvidia-cuda-eula", "KBUILD_DEBIAN_MIRROR": "file:///m"}
CU126 = Requirements("cuda", torch="2.14", toolkit="12.6", system="x86_64-linux")


class Machine:
    """Every process but apt's is a real one."""

    def __init__(self, deb: bytes = DEB) -> None:
        self.deb = deb

    def run(self, argv, *, cwd: Path | None = None, **given: Any) -> ProcessResult:
        if "download-file" not in argv:
            return LocalRunner().run(argv, cwd=cwd, **given)
        assert argv[-3:] == (
            "file:///m/pool/toolkit.deb",
            "toolkit.deb",
            f"SHA256:{sha256(self.deb)}",
        )
        assert cwd is not None
        (cwd / "toolkit.deb").write_bytes(self.deb)
        return ProcessResult(argv, 0, "", 0.0)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_wheels, "host_system", lambda: System("x86_64", "linux"))
    monkeypatch.setattr("kbuild.plugins.debian.nvcc.missing_downloader_reason", lambda: None)


@pytest.fixture
def wheels(tmp_path: Path) -> Iterator[WheelToolchains]:
    lock = fill(tmp_path / "shelf")
    with serve(tmp_path / "shelf") as served:
        yield WheelToolchains(Machine(), tmp_path / "cache", lock=lock, settings=served.settings)


@pytest.fixture
def toolkits(wheels: WheelToolchains) -> DebianNvccToolkits:
    own = replace(pins(), package=PACKAGE)
    return DebianNvccToolkits(wheels.installer, wheels.cache, ACCEPTED, own)


def test_the_prefix(toolkits: DebianNvccToolkits) -> None:
    root = toolkits.provide("12.6").root
    for name in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc"):
        assert os.access(root / name, os.X_OK)
    assert (root / "bin/nvcc").read_text() == "nvcc"
    assert (root / "bin/ptxas").read_text() == (root / "bin/cuobjdump").read_text() == "ptxas"
    assert (root / "bin/crt/link.stub").is_file()
    assert (root / "nvvm/libdevice/libdevice.10.bc").is_file()
    assert (root / "include/crt/host_config.h").is_file()
    assert (root / "lib64/libcudart.so").read_bytes() == b"cudart"
    assert (root / "lib/libcudadevrt.a").read_bytes() == b"!<arch>\n"
    assert "License" in (root / "licenses/nvidia-cuda-toolkit").read_text()
    assert not (root / "bin/g++").exists()
    assert not (root / "bin/nvdisasm").exists()


def test_it_is_made_once_and_whole(toolkits: DebianNvccToolkits) -> None:
    entry = toolkits.install()
    assert entry.name.startswith("debian-nvcc-12.4.131-")
    assert entry.facts["license"] == "nvidia-cuda-eula"
    assert [made["how"] for made in entry.facts["sources"]].count("apt") == 1
    assert entry.differences() == ()
    shutil.rmtree(toolkits.cache / "downloads")
    assert toolkits.install().name == entry.name


@pytest.mark.parametrize("environ", [{}, {"KBUILD_ACCEPT_LICENSE": "mit"}])
def test_the_licence_must_be_accepted(toolkits: DebianNvccToolkits, environ) -> None:
    asked = replace(toolkits, environ=environ)
    assert asked.unsupported_reason("12.6") == (
        "to use nvcc 12.4.131 (Debian trixie), read NVIDIA's End User License Agreement "
        "for the CUDA Toolkit (https://docs.nvidia.com/cuda/eula/), and set "
        "KBUILD_ACCEPT_LICENSE=nvidia-cuda-eula to accept it"
    )
    with pytest.raises(ToolchainError, match="nvidia-cuda-eula"):
        asked.provide("12.6")
    assert not (toolkits.cache / "downloads").exists()


@pytest.mark.parametrize("release", ["13.0", "12.2", "11.8"])
def test_other_releases(toolkits: DebianNvccToolkits, release: str) -> None:
    assert toolkits.unsupported_reason(release) == "debian-nvcc is for CUDA 12, from 12.4 on"


def test_what_was_used_is_recorded(toolkits: DebianNvccToolkits) -> None:
    made = toolkits.provide("12.6")
    assert dict(made.versions) == {
        "cuda": "12.4.1 headers",
        "nvcc": "12.4.131 (Debian trixie) for a CUDA 12.6 variant",
        "license": "nvidia-cuda-eula, accepted by KBUILD_ACCEPT_LICENSE",
    }
    assert made.notes == ("compiled by nvcc 12.4.131 (Debian trixie) for a CUDA 12.6 variant",)
    assert made.versions == toolkits.preview("12.6")
    assert toolkits.compiler("12.6") == "12.4"


def test_a_poor_variant_is_called_one(toolkits: DebianNvccToolkits) -> None:
    (note,) = toolkits.provide("12.8").notes
    assert note.endswith("without code for 10.0, 10.1, 12.0: GPUs of that kind cannot run it")


class Local(CudaToolkitSource):
    name = "local"

    def __init__(self, release: str) -> None:
        self.release = release

    def unsupported_reason(self, release: str) -> str | None:
        return None if release == self.release else "none is here"

    def preview(self, release: str):
        return (("nvcc", f"{release}.85 (local)"),)

    def provide(self, release: str) -> CudaToolkit:
        root = Path("/local")
        return CudaToolkit(self.name, root, root / "bin" / "nvcc", self.preview(release))


def test_a_local_toolkit_goes_first(wheels: WheelToolchains, toolkits: DebianNvccToolkits) -> None:
    box = replace(wheels, others=(Local("12.6"), toolkits))
    assert dict(box.preview(CU126).versions)["nvcc"] == "12.6.85 (local)"
    facts = dict(box.provision(CU126).cache)
    assert facts["CMAKE_CUDA_COMPILER"] == "/local/bin/nvcc"
    assert facts["KBUILD_TORCH_VERSION"] == "2.14.1"
    assert box.compiler(CU126) is None
    other = replace(CU126, toolkit="12.8")
    assert "Debian" in dict(box.preview(other).versions)["nvcc"]
    assert box.compiler(other) == "12.4"


def test_without_any_every_way_is_named(
    wheels: WheelToolchains, toolkits: DebianNvccToolkits
) -> None:
    box = replace(wheels, others=(Local("12.8"), replace(toolkits, environ={})))
    reason = box.unsupported_reason(CU126) or ""
    ways = ("have no nvcc; install that toolkit and set CUDA_HOME", "none is here", "to use nvcc")
    assert [reason.find(way) for way in ways] == sorted(reason.find(way) for way in ways)
    assert -1 not in [reason.find(way) for way in ways]


def test_named_it_is_for_cuda_12_alone(
    wheels: WheelToolchains, toolkits: DebianNvccToolkits
) -> None:
    named = DebianNvccToolchains(replace(wheels, others=(toolkits,)), toolkits)
    assert named.unsupported_reason(CU126) is None
    assert named.unsupported_reason(replace(CU126, toolkit="13.0")) is not None
    assert named.unsupported_reason(Requirements("cpu", torch="2.14", system="x86_64-linux")) == (
        "debian-nvcc compiles for CUDA only"
    )
    made = named.provision(CU126)
    facts = dict(made.cache)
    assert facts["CMAKE_CUDA_FLAGS"] == "--cudart=shared"
    assert facts["CUDAToolkit_ROOT"] == made.env["CUDA_HOME"]
    assert made.notes[-1].startswith("compiled by nvcc 12.4.131")
    with pytest.raises(ToolchainError, match="debian-nvcc does not fit"):
        named.provision(replace(CU126, toolkit="13.0"))


def test_a_link_out_of_the_package(toolkits: DebianNvccToolkits) -> None:
    deb = _deb({**FILES, "bin/nvlink": "-> /etc/passwd"})
    runner = Machine(deb)
    package = replace(PACKAGE, sha256=sha256(deb))
    own = replace(toolkits, pins=replace(toolkits.pins, package=package))
    own = replace(own, installer=replace(own.installer, runner=runner))
    with pytest.raises(ToolchainError, match=r"`usr/bin/nvlink` of .* leads out of it"):
        own.install()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("404  Not Found", r"trixie has moved on: .* no longer has toolkit\.deb"),
        ("Hash Sum mismatch", "could not be fetched from file:///m:\nHash Sum mismatch"),
    ],
)
def test_what_cannot_be_fetched(tmp_path: Path, output: str, message: str) -> None:
    runner = FakeRunner({"download-file": failed(output)})
    with pytest.raises(ToolchainError, match=message):
        fetch_package(replace(pins(), package=PACKAGE), tmp_path, ACCEPTED, runner)


def test_mirrors() -> None:
    listed = "https://a.test/other/\nhttps://a.test/debian-security/\nhttps://a.test/debian/\n"
    assert find_mirror({}, FakeRunner({"indextargets": listed})) == "https://a.test/debian"
    with pytest.raises(ToolchainError, match="no Debian mirror") as caught:
        find_mirror({}, FakeRunner({"indextargets": "https://a.test/ubuntu/\n"}))
    assert "KBUILD_DEBIAN_MIRROR" in caught.value.hint


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("usr/bin/nvcc", None),
        ("usr/lib/nvidia-cuda-toolkit/bin/nvcc", "bin/nvcc"),
        ("usr/bin/cudafe++", "bin/cudafe++"),
        ("usr/lib/nvidia-cuda-toolkit/bin/gcc", None),
        ("usr/lib/nvidia-cuda-toolkit/compute-sanitizer/compute-sanitizer", None),
    ],
)
def test_the_layout_is_nvidias(path: str, place: str | None) -> None:
    assert destination_of(path) == place
