"""Limits, policies and shims as data: what they hold, and what is made of them."""

from __future__ import annotations

import pytest

from kbuild.checks import CheckLimits
from kbuild.checks.manylinux import best_policy
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.symbols import ElfSymbol
from kbuild.checks.torch_abi import is_unstable
from kbuild.project.variant import Variant
from kbuild.system.version import Version


def asking(*versions: str, cpu: str = "x86_64") -> ElfFile:
    symbols = tuple(ElfSymbol(f"f{n}", False, "STB_GLOBAL", v) for n, v in enumerate(versions))
    needs = tuple(("libc.so.6", version) for version in versions)
    return ElfFile("EM_ANY", cpu, True, ("libc.so.6",), (), False, False, symbols, needs)


@pytest.mark.parametrize(
    ("elf", "best"),
    [
        (asking("GLIBC_2.2.5"), "manylinux_2_5"),
        (asking("GLIBC_2.14"), "manylinux_2_17"),
        (asking("GLIBC_2.28", "GLIBCXX_3.4.24"), "manylinux_2_28"),
        (asking("GLIBC_2.34"), "manylinux_2_34"),
        (asking("GLIBC_2.17", cpu="aarch64"), "manylinux_2_17"),
        (asking("GLIBC_2.27", cpu="riscv64"), "manylinux_2_31"),
        (asking("GLIBC_2.99"), None),
        (asking("GLIBC_PRIVATE"), None),
        (asking(cpu="avr"), None),
    ],
)
def test_the_oldest_policy_that_holds(elf: ElfFile, best: str | None) -> None:
    assert best_policy(elf) == best


def test_limits_come_from_the_variant_unless_somebody_chose() -> None:
    stable = Variant.parse("torch-stable-abi211-cpu-x86_64-linux")
    filled = CheckLimits().filled(stable)
    assert filled.manylinux == "manylinux_2_28"
    assert filled.python_abi == Version((3, 9))
    assert filled.torch_stable_abi == Version((2, 11))
    assert CheckLimits().filled(None).torch_stable_abi is None
    assert CheckLimits().filled(Variant.parse("torch213-metal-aarch64-darwin")).macos == Version(
        (26,)
    )
    asked = CheckLimits(python_abi=Version((3, 10)), torch_stable_abi=Version((2, 12)))
    assert asked.filled(stable).python_abi == Version((3, 10))
    assert asked.filled(stable).torch_stable_abi == Version((2, 12))


@pytest.mark.parametrize(
    ("name", "unstable"),
    [
        ("_ZN2at4_ops4relu4callERKNS_6TensorE", True),
        ("_ZTIN3c105ErrorE", True),
        ("_ZN5torch7LibraryD1Ev", True),
        ("_ZN5torch6stable6TensorD1Ev", False),
        ("_ZN5torch10headeronly4sizeEv", False),
        ("_ZNSt6vectorIN2at6TensorEE4sizeEv", False),
        ("THPVariable_Wrap", True),
        ("aoti_torch_get_sizes", False),
    ],
)
def test_what_the_next_torch_may_change(name: str, unstable: bool) -> None:
    assert is_unstable(name) is unstable
