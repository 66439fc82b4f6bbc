from __future__ import annotations

import pytest

from kbuild.project.config.dependencies import libraries
from kbuild.system.errors import ToolchainError
from kbuild.system.version import Version
from kbuild.toolchains.dependency_headers.fetch import headers_below
from kbuild.toolchains.dependency_headers.pins import header_dependency_names, pin_of

FIXED = [name for name in header_dependency_names() if libraries()[name].version]


def test_every_dependency_but_torch_has_a_check() -> None:
    assert set(header_dependency_names()) == set(libraries()) - {"torch"}


@pytest.mark.parametrize("name", FIXED)
def test_every_pin_is_whole(name: str) -> None:
    pin = pin_of(name)
    assert pin.check.files
    assert pin.library.include
    assert pin.library.repository or name == "metal-cpp"
    assert pin.tag == f"v{pin.version}"


def test_wheels_hold_exactly_the_release() -> None:
    pins = [pin_of(name) for name in FIXED]
    wheels = {pin.name: pin.wheel.locked for pin in pins if pin.wheel}
    assert set(wheels) == {"cutlass_3_5", "cutlass_3_6", "cutlass_3_8"}
    for name, locked in wheels.items():
        assert locked.version == f"{libraries()[name].version}.0"
        assert locked.project == "nvidia-cutlass"
        assert {len(locked.sha256), len(locked.record or "")} == {64}


@pytest.mark.parametrize(
    ("compiler", "version", "wheel"), [("2025.3", "0.8", True), ("2026.1", "0.9.2", False)]
)
def test_a_release_by_compiler(compiler: str, version: str, wheel: bool) -> None:
    pin = pin_of("sycl_tla", Version.parse(compiler))
    assert (pin.version, pin.tag, pin.wheel is not None) == (version, f"v{version}", wheel)
    assert pin.title == f"SYCL*TLA {version}"


@pytest.mark.parametrize("compiler", [None, Version((2024, 1))])
def test_no_release_for_the_compiler(compiler: Version | None) -> None:
    with pytest.raises(ToolchainError, match=r"no release of SYCL\*TLA") as raised:
        pin_of("sycl_tla", compiler)
    assert "2025.3" in raised.value.hint


@pytest.mark.parametrize("name", ["torch", "cutlass_9_9"])
def test_names_without_headers(name: str) -> None:
    with pytest.raises(ToolchainError, match=f"`{name}` is not a header dependency"):
        pin_of(name)


@pytest.mark.parametrize(
    ("member", "target"),
    [
        ("lib/source/include/a.h", "include/a.h"),
        ("lib/source/tools/util/include/u/b.h", "tools/util/include/u/b.h"),
        ("lib/source/examples/e.cu", None),
        ("lib/source/include_more/a.h", None),
        ("include/a.h", None),
        ("x-1.dist-info/LICENSE.txt", "LICENSE.txt"),
        ("x-1.dist-info/licenses/LICENSE.txt", "LICENSE.txt"),
        ("x-1.dist-info/METADATA", None),
    ],
)
def test_members_that_are_kept(member: str, target: str | None) -> None:
    assert headers_below("lib/source", ("include", "tools/util/include"))(member) == target
