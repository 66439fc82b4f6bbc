from __future__ import annotations

import pytest

from kbuild.system.errors import ToolchainError
from kbuild.system.version import Version
from kbuild.toolchains.dependency_headers.pins import pin_of


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
