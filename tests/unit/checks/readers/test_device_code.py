"""Containers of device code: what real compilers wrote, and damage."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest

from kbuild.checks.readers import hip_bundles
from kbuild.checks.readers import nvidia as cuda
from kbuild.checks.readers.device_code import read_device_code
from kbuild.checks.readers.device_image import DeviceCodeError, DeviceImage
from tests.support.device_code import MACHINE, PTX, REAL, bundle, carrying, fatbin

Reader = Callable[[mmap, int, int], Iterator[DeviceImage]]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[DeviceImage]]:
    """What a reader finds in these bytes."""

    def found(reader: Reader, data: bytes, start: int = 0) -> list[DeviceImage]:
        path = tmp_path / "bytes"
        path.write_bytes(data)
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as view:
            return list(reader(view, start, len(data)))

    return found


def shown(images: list[DeviceImage]) -> list[str]:
    return [f"{image.target} {image.kind} {image.compression}".strip() for image in images]


CUDA132 = [
    "8.0 ptx zstd",
    "8.0 machine zstd",
    "9.0a ptx zstd",
    "9.0a machine zstd",
    "10.0f machine zstd",
    "12.0 machine zstd",
]
CUDA124 = ["8.0 ptx lz4", "8.0 machine", "9.0a ptx lz4", "9.0a machine"]
CLANG21 = ["gfx1100", "gfx90a:xnack+", "gfx942:sramecc+:xnack-"]


@pytest.mark.parametrize(("name", "listed"), [("cuda132", CUDA132), ("cuda124", CUDA124)])
def test_what_nvcc_wrote(
    read: Callable[..., list[DeviceImage]], name: str, listed: list[str]
) -> None:
    data = (REAL / f"{name}.fatbin").read_bytes()
    found = read(cuda.read_fat_binaries, data)
    assert shown(found) == listed
    assert sum(image.size for image in found) == len(data) - cuda.FATBIN_HEADER.size


def test_what_clang_compressed(read: Callable[..., list[DeviceImage]]) -> None:
    if sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    data = (REAL / "clang21.hipfb").read_bytes()
    found = read(hip_bundles.read_offload_bundles, data)
    assert sorted(shown(found)) == [f"{arch} machine zstd" for arch in CLANG21]
    assert 0 < sum(image.size for image in found) <= len(data)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_of_a_compressed_bundle(
    read: Callable[..., list[DeviceImage]], version: int
) -> None:
    plain = bundle("gfx942", "gfx90a:xnack-")
    data = packed(plain, version)
    found = read(
        hip_bundles.read_offload_bundles,
        data + bytes(4096 - len(data)) + packed(bundle("gfx1100"), version),
    )
    assert [image.target for image in found] == ["gfx942", "gfx90a:xnack-", "gfx1100"]
    assert {image.compression for image in found} == {"zlib"}
    assert {image.container for image in found} == {0, 4096}


def packed(plain: bytes, version: int) -> bytes:
    body = zlib.compress(plain)
    head = struct.pack("<4sHH", b"CCOB", version, 0)
    size = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}[version]
    length = len(head) + struct.calcsize(size) + len(body)
    numbers = (len(plain), 7) if version == 1 else (length, len(plain), 7)
    return head + struct.pack(size, *numbers) + body


GOOD = fatbin((MACHINE, "80"), (PTX, "90"))


@pytest.mark.parametrize(
    ("reader", "data", "what"),
    [
        (cuda.read_fat_binaries, b"\x01" + GOOD, "no CUDA fat binary begins at offset 0x0"),
        (
            cuda.read_fat_binaries,
            GOOD + b"\x00" * 8 + b"junk" * 8,
            f"begins at offset {len(GOOD) + 8:#x}",
        ),
        (cuda.read_fat_binaries, GOOD[:-8], "the CUDA fat binary at offset 0x0 is damaged"),
        (cuda.read_fat_binaries, GOOD[:12], "is cut off"),
        (cuda.read_fat_binaries, GOOD[:24] + b"\xff" * 8 + GOOD[32:], "is damaged"),
        (cuda.read_fat_binaries, fatbin((MACHINE, "90"), inside=80),
         "is not for 90, as its entry says"),
        (cuda.read_fat_binaries, GOOD[:80] + b"XELF" + GOOD[84:], "is not a cubin"),
        (hip_bundles.read_offload_bundles, b"\x01" * 64, "no offload bundle begins"),
        (hip_bundles.read_offload_bundles, bundle("gfx942")[:-1], "is cut off"),
        (hip_bundles.read_offload_bundles, b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 64,
         "is damaged"),
        (hip_bundles.read_offload_bundles, packed(bundle("gfx942"), 2)[:-1], "is cut off"),
        (hip_bundles.read_offload_bundles, packed(b"something else", 2).ljust(64, b"\0"),
         "holds no offload bundle"),
        (hip_bundles.read_offload_bundles, b"CCOB\x09\x00\x00\x00" + bytes(64),
         "version 9, method 0"),
        (hip_bundles.read_offload_bundles, packed(bundle("gfx942"), 2)[:32] + b"\xff" * 90,
         "is cut off|not unpack"),
    ],
)  # fmt: skip
def test_damage(
    read: Callable[..., list[DeviceImage]], reader: Reader, data: bytes, what: str
) -> None:
    with pytest.raises(DeviceCodeError, match=what):
        read(reader, data)


@pytest.mark.compile
class TestLibraries:
    def test_sections_are_told_apart(self, library: Callable[..., bytes], tmp_path: Path) -> None:
        sections = {
            ".nv_fatbin": GOOD,
            ".hip_fatbin": bundle("gfx942"),
            "__nv_relfatbin": fatbin((MACHINE, "75")),
            "__CLANG_OFFLOAD_BUNDLE__sycl-spir64": b"spirv",
            ".hipFatBinSegment": bytes(24),
        }
        path = tmp_path / "x.so"
        path.write_bytes(carrying(library, tmp_path, sections))
        code = read_device_code(path)
        assert {(image.backend, image.arch) for image in code.images} == {
            ("cuda", "8.0"),
            ("cuda", "9.0"),
            ("rocm", "gfx942"),
            ("xpu", "spir64"),
        }
        assert code.registers
        assert code.relocatable
