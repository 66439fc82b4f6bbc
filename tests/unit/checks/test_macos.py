"""Mach-O libraries: a good one passes, and each fault is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbuild.checks import Check, CheckLimits, Finding, Output
from kbuild.checks.binary import BinaryCheck
from kbuild.checks.macos import MacOsCheck
from kbuild.checks.python_abi import PythonAbiCheck
from kbuild.checks.torch_abi import TorchAbiCheck
from kbuild.system.version import Version
from tests.support.macho import IOS, macho

ID = "_relu_cpu_0a1b2c3"
INIT = (f"PyInit_{ID}",)
DARWIN = "torch213-cpu-aarch64-darwin"
CHECKS = (BinaryCheck(), MacOsCheck(), PythonAbiCheck(), TorchAbiCheck())
Make = Callable[..., Output]
Run = Callable[[Check, Output], list[Finding]]


def told(output: Output, run: Run) -> list[str]:
    return [finding.what for check in CHECKS for finding in run(check, output)]


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({}, []),
        ({"minos": "15.0", "old_command": True}, []),
        ({"minos": "14.2.1"}, []),
        ({"minos": "15.4"}, ["needs macOS 15.4, after 15.0"]),
        ({"minos": "26.0", "old_command": True}, ["needs macOS 26.0, after 15.0"]),
        ({"minos": None}, ["does not say which macOS it needs (no LC_BUILD_VERSION)"]),
        ({"platform": IOS}, ["made for another system than macOS (LC_BUILD_VERSION)"]),
        ({"cpu": "x86_64"}, [f"made for x86_64, but the variant is for {DARWIN[13:]}"]),
        ({"bundle": False}, ["not a shared library"]),
        ({"rpaths": ["/Users/me/lib"]}, ["LC_RPATH is `/Users/me/lib`"]),
        (
            {"needed": ["/opt/homebrew/lib/libfoo.dylib"]},
            ["needs `/opt/homebrew/lib/libfoo.dylib`, which neither the system nor Torch provides"],
        ),
        ({"needed": ["@rpath/libtorch_cpu.dylib"]}, []),
        ({"undefined": ["PyList_New"]}, []),
        ({"undefined": ["_PyNot"]}, ["`_PyNot` is not in CPython's stable ABI"]),
        (
            {"exported": ["PyInit_other"]},
            [f"does not export `{INIT[0]}` (it exports `PyInit_other`)"],
        ),
    ],
)
def test_macho(make: Make, run: Run, how: dict[str, object], what: list[str]) -> None:
    output = make({f"{ID}.abi3.so": macho(**({"exported": INIT} | how))}, variant=DARWIN)
    assert told(output, run) == what


def test_the_limit_of_macos_is_the_variants_unless_somebody_chose(make: Make, run: Run) -> None:
    data = macho(minos="26.0", exported=INIT)
    assert told(make({f"{ID}.abi3.so": data}, variant="torch213-metal-aarch64-darwin"), run) == []
    asked = CheckLimits(macos=Version((14,)))
    output = make({f"{ID}.abi3.so": macho(exported=INIT)}, variant=DARWIN, asked=asked)
    assert told(output, run) == ["needs macOS 15.0, after 14"]


def test_the_stable_abi_on_macos(make: Make, run: Run) -> None:
    names = ["_ZN3c105ErrorC1Ev", "torch_new_generator_handle", "aoti_torch_get_sizes"]
    data = macho(undefined=names, exported=INIT)
    output = make({f"{ID}.abi3.so": data}, variant="torch-stable-abi211-cpu-aarch64-darwin")
    assert told(output, run) == [
        "`torch_new_generator_handle` came with Torch 2.13, after 2.11",
        "takes `_ZN3c105ErrorC1Ev` from Torch's C++, which has no stable ABI",
    ]
