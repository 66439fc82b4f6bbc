"""Mach-O libraries: a good one passes, and each fault is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kbuild.checks import Check, CheckLimits, Finding, Output
from kbuild.checks.binary import BinaryCheck
from kbuild.checks.macos import MacOsCheck
from kbuild.checks.python_abi import PythonAbiCheck
from kbuild.checks.readers.elf import UnreadableBinaryError
from kbuild.checks.readers.macho import read_macho
from kbuild.checks.torch_abi import TorchAbiCheck
from kbuild.system.version import Version
from tests.support.macho import IOS, macho, universal

ID = "_relu_cpu_0a1b2c3"
INIT = (f"PyInit_{ID}",)
DARWIN = "torch213-cpu-aarch64-darwin"
WINDOWS = "torch213-cpu-x86_64-windows"
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


def test_every_slice_of_a_universal_file_is_looked_at(make: Make, run: Run) -> None:
    both = universal(macho(exported=INIT), macho("x86_64", minos="15.5", exported=INIT))
    assert told(make({f"{ID}.abi3.so": both}, variant=DARWIN), run) == [
        "x86_64: needs macOS 15.5, after 15.0"
    ]


def test_a_universal_file_for_no_cpu(make: Make, run: Run) -> None:
    output = make({f"{ID}.abi3.so": universal()}, variant=DARWIN)
    assert told(output, run) == ["not a valid Mach-O file: it is for no CPU"]


def test_the_stable_abi_on_macos(make: Make, run: Run) -> None:
    names = ["_ZN3c105ErrorC1Ev", "torch_new_generator_handle", "aoti_torch_get_sizes"]
    data = macho(undefined=names, exported=INIT)
    output = make({f"{ID}.abi3.so": data}, variant="torch-stable-abi211-cpu-aarch64-darwin")
    assert told(output, run) == [
        "`torch_new_generator_handle` came with Torch 2.13, after 2.11",
        "takes `_ZN3c105ErrorC1Ev` from Torch's C++, which has no stable ABI",
    ]


@pytest.mark.parametrize(
    ("variant", "data", "what"),
    [
        (DARWIN, b"text", "not a Mach-O file"),
        ("torch213-cxx11-cpu-x86_64-linux", macho(), "not an ELF but a Mach-O file"),
        (WINDOWS, b"MZ", "not checked: kbuild reads no libraries for windows"),
    ],
)
def test_the_wrong_systems_file(make: Make, run: Run, variant: str, data: bytes, what: str) -> None:
    assert [f.what for f in run(BinaryCheck(), make({"x.dll": data}, variant=variant))] == [what]


def test_a_file_of_an_unknown_variant_is_checked_by_its_format(make: Make, run: Run) -> None:
    good = make({f"{ID}.abi3.so": macho(minos="15.9", exported=INIT)}, variant=DARWIN)
    assert told(Output(good.root, None), run) == ["needs macOS 15.9, after 15.0"]


def test_damage_is_a_finding_and_no_traceback(tmp_path: Path) -> None:
    good = macho(exported=INIT)
    chance, target = random.Random(0), tmp_path / "damaged"  # noqa: S311
    for _ in range(60):
        data = bytearray(good)
        for _ in range(chance.choice([1, 5, 40])):
            data[chance.randrange(len(data))] ^= 0xFF
        target.write_bytes(data[: chance.choice([len(data), chance.randrange(8, len(data))])])
        with suppress(UnreadableBinaryError):
            read_macho(target)
