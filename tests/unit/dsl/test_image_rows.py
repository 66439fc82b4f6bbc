"""What is said of compiled images: rows of the report, and versions in `metadata.json`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kbuild.checks.readers.nvidia import KernelResources, read_kernel_resources
from kbuild.dsl.image_rows import image_rows, with_image_compilers
from kbuild.ops.image import KernelImage, UnitImage
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.plan.plan import AotKernel, KernelInfo, Requirements, ToolchainSummary, VariantPlan
from tests.support.cubins import cubin

TABLE = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["k.py"]}
KERNEL = AotKernel(read_section("gemm", TABLE), ("sm_90a",), "cuda13")


def compiled(target: str, size: int, *, cached: bool = False, registers: int | None = None):
    where = ImageTarget.parse(target)
    unit = KernelUnit("triton", "gemm", "mm", 0, ("mm",), where, (("x", "float16"),))
    compiler = {"triton": "3.9.0", "ptxas": "13.4.59" if "90" in target else "12.9.86"}
    image = KernelImage(
        "triton", where.arch, where.kind, "mm", (), size, 128, registers=registers,
        spills=2 if registers else None, compiler=compiler,
    )  # fmt: skip
    return UnitImage(unit, image, b"x" * size, seconds=0.5, cached=cached)


@pytest.fixture
def images():
    made = (
        compiled("sm_90a", 100, registers=40),
        compiled("sm_90a", 50, cached=True, registers=64),
        compiled("compute_80", 10),
    )
    return ((KERNEL, made),)


def test_rows_add_up(images):
    first, second = image_rows(images)
    assert (first.kernel, first.op, first.target) == ("gemm", "mm", "sm_90a")
    assert (first.images, first.size, first.cached, first.seconds) == (2, 150, 1, 0.5)
    assert (first.registers, first.spills, first.shared) == (64, 2, 100)
    assert (second.target, second.registers) == ("compute_80", None)


def test_objects_are_looked_into_and_counted_once():
    """Candidates that share an object are as many images, and one piece of code."""
    code = cubin({"kernel_a": (168, 24, 1024), "kernel_b": (40, 0, 2048)})
    where = ImageTarget.parse("sm_90a")
    made = []
    for width in (64, 128):
        unit = KernelUnit("cute", "gemm", "mm", 0, ("mm",), where, (("x", "float16"),))
        image = KernelImage(
            "cute", where.arch, "object", "mm", (), 8192, 1, convention="tvm-ffi",
            compiler={"nvidia-cutlass-dsl": "4.8.1"}, constants={"width": width},
        )  # fmt: skip
        made.append(UnitImage(unit, image, code, seconds=0.5))
    (row,) = image_rows(((KERNEL, tuple(made)),))
    assert (row.images, row.size) == (2, len(code))
    assert (row.registers, row.local, row.spills) == (168, 24, None)
    assert row.shared == 8192 + 2048


def test_versions_of_compilers_are_told(images):
    plan = VariantPlan(
        "torch-stable-abi211-cu130-x86_64-linux", "torch-stable-abi", "cuda",
        KernelInfo("k", "k", 1, "MIT"), "1", "_k_cuda_1", Requirements("cpu"), aot=(KERNEL,),
        toolchain=ToolchainSummary("host", (("c++", "12"),), "f"),
    )  # fmt: skip
    told = with_image_compilers(plan, images).toolchain
    assert told.versions == (("c++", "12"), ("ptxas", "12.9.86, 13.4.59"), ("triton", "3.9.0"))
    assert with_image_compilers(plan, ()) is plan


def test_no_path_of_this_machine(images):
    assert str(Path.home()) not in str(image_rows(images))


def test_every_kernel_of_every_cubin():
    first = cubin({"gemm": (168, 0, 1024), "copy": (32, 40, 0)})
    second = cubin({"gemm": (255, 8, 0)})
    found = read_kernel_resources(b"\x7fELF\x02\x01 of the host" + first + bytes(3) + second)
    assert found == (
        KernelResources("gemm", 168, 0, 1024),
        KernelResources("copy", 32, 40, 0),
        KernelResources("gemm", 255, 8, 0),
    )


def test_attributes_of_other_forms_are_passed_over():
    others = struct.pack("<BBH4s", 4, 0x37, 4, b"abcd") + struct.pack("<BBH", 1, 0x54, 0)
    assert read_kernel_resources(cubin({"k": (12, 0, 0)}, more=others)) == (
        KernelResources("k", 12, 0, 0),
    )


@pytest.mark.parametrize("code", [b"", b"// PTX", b"\x7fELF\x02\x01", cubin({}, machine=224)])
def test_what_is_no_cubin(code):
    assert read_kernel_resources(code) == ()


def test_a_cubin_that_is_cut_off():
    whole = cubin({"k": (12, 0, 0)})
    for end in range(0, len(whole), 7):
        assert read_kernel_resources(whole[:end]) == ()
