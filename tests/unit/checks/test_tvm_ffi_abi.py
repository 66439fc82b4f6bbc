from __future__ import annotations

import platform

import pytest

from kbuild.checks.clash import ClashCheck
from kbuild.checks.tvm_ffi_abi import TvmFfiAbiCheck

pytestmark = pytest.mark.compile

ID = "_relu_cpu_0a1b2c3"
VARIANT = f"tvm-ffi01-cpu-{platform.machine()}-linux"
FUNCTION = "int __tvm_ffi_relu(void) { return 0; }\n"


@pytest.fixture
def said(make, library, run):
    """What the check says of a library of this source: severity and words."""

    def ran(source: str, variant: str = VARIANT, check=None):
        output = make({f"{ID}.so": library(source)}, variant=variant)
        return [(found.severity, found.what) for found in run(check or TvmFfiAbiCheck(), output)]

    return ran


def taking(*names: str) -> str:
    declared = "".join(f"extern void {name}(void);\n" for name in names)
    return f"{FUNCTION}{declared}void *hold[] = {{{', '.join(names)}}};\n"


@pytest.mark.parametrize(
    "source", ["int relu;", "int __tvm_ffi__metadata_relu(void) { return 0; }"]
)
def test_no_function(said, source) -> None:
    ((severity, what),) = said(source)
    assert severity == "error"
    assert "exports no function" in what


def test_functions_of_newer_runtimes(said) -> None:
    names = ("TVMFFITensorCreateUnsafeView", "TVMFFISetCustomAllocator", "TVMFFINoSuchThing")
    found = said(taking(*names))
    assert {severity for severity, _ in found} == {"warning"}
    assert [what.partition(":")[0] for _, what in found] == [
        "`TVMFFINoSuchThing`",
        "`TVMFFISetCustomAllocator` came with TVM-FFI 0.1.13",
        "`TVMFFITensorCreateUnsafeView` came with TVM-FFI 0.1.6",
    ]


def test_a_kernel_that_stands_in_for_the_runtime(said) -> None:
    """The process has one runtime; a kernel's own symbols of that name must not be found first."""
    source = f"{FUNCTION}int TVMFFIEnvGetStream(void) {{ return 0; }}\n"
    ((_, what),) = said(source, check=ClashCheck())
    assert "`TVMFFIEnvGetStream`" in what
