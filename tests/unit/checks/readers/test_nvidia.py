"""What a cubin says of its kernels; made by hand, as `cuobjdump --dump-resource-usage` reads it."""

from __future__ import annotations

import struct

import pytest

from kbuild.checks.readers.nvidia import KernelResources, read_kernel_resources
from tests.support.cubins import cubin


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
