"""A ROCm variant for all architectures on a machine without ROCm: Debian's HIP, any Torch.

Nothing here runs on an AMD GPU: what was compiled is looked at.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from integration_bench import Bench

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]

VARIANT = "torch-stable-abi211-rocm72-x86_64-linux"
HIP = ("--toolchain", "debian-hip")
TOOLCHAIN = 4
"""Exit code when packages cannot be had."""
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
DEVICE = "hipv4-amdgcn-amd-amdhsa--"


def bundled(image: bytes) -> dict[str, int]:
    """Target -> size of its code object (clang's offload bundle format)."""
    assert image.startswith(MAGIC)
    (count,) = struct.unpack_from("<Q", image, len(MAGIC))
    at, found = len(MAGIC) + 8, {}
    for _ in range(count):
        _, size, length = struct.unpack_from("<QQQ", image, at)
        at += 24
        found[image[at : at + length].decode()] = size
        at += length
    return found


@pytest.fixture(scope="module")
def bench(example: Callable[[str], Bench]) -> Bench:
    return example("relu-stable-abi")


@pytest.fixture(scope="module")
def built(bench: Bench) -> Path:
    """The variant directory, built through the command."""
    listed = bench.kbuild("list-variants", "--variant", VARIANT, *HIP, "--json").stdout
    reason = json.loads(listed)[0]["reason"]
    if reason is not None:
        pytest.skip(reason)
    done = bench.run("build", "--variant", VARIANT, *HIP)
    if done.returncode == TOOLCHAIN:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return bench.root / "build" / VARIANT


def sections(folder: Path) -> ELFFile:
    (extension,) = folder.glob("*.so")
    return ELFFile(io.BytesIO(extension.read_bytes()))


def test_every_architecture_has_code(built: Path) -> None:
    image = sections(built).get_section_by_name(".hip_fatbin").data()
    sizes = {name.removeprefix(DEVICE): size for name, size in bundled(image).items() if size}
    metadata = json.loads((built / "metadata.json").read_text())
    assert set(sizes) == set(metadata["backend"]["archs"])
    assert {"gfx90a", "gfx942", "gfx950", "gfx1201"} <= set(sizes)


def test_it_needs_the_runtime_of_that_rocm(built: Path) -> None:
    tags = list(sections(built).get_section_by_name(".dynamic").iter_tags())
    needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    assert {"libtorch.so", "libamdhip64.so.7"} <= needed
    assert not {tag.entry.d_tag for tag in tags} & {"DT_RPATH", "DT_RUNPATH"}


@pytest.mark.usefixtures("built")
def test_the_plan_says_that_it_is_experimental(bench: Bench) -> None:
    (plan,) = json.loads(bench.kbuild("plan", "--variant", VARIANT, *HIP, "--json").stdout)
    assert plan["toolchain"]["source"] == "debian-hip"
    assert ["support", "experimental"] in plan["toolchain"]["versions"]
