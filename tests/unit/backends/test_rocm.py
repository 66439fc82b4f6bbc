"""ROCm architectures: exact names, in the order of the hardware."""

from __future__ import annotations

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.rocm import RocmSection
from kbuild.system.version import Version

ROCM = BACKENDS.get("rocm")
RELEASE = Version.parse("7.2")


def test_members_only_in_hardware_order():
    found = ROCM.archs(["gfx906", "gfx940", "gfx90a", "gfx1100"], RELEASE)
    assert found.names == ("gfx906", "gfx90a", "gfx1100")
    assert found.dropped == ("`gfx940` is left out: not a target of ROCm 7.2",)


def test_defaults_follow_the_release():
    assert len(ROCM.archs(None, RELEASE).names) == 10
    assert "gfx950" not in ROCM.archs(None, Version.parse("6.4")).names


def test_nothing_left():
    with pytest.raises(ValueError, match=r"none of `gfx940` is a target of ROCm 7\.2"):
        ROCM.archs(["gfx940"], RELEASE)


def test_flags():
    section = RocmSection.model_validate(
        {"backend": "rocm", "depends": [], "src": ["a.cu"], "hip-flags": ["-O2"]}
    )
    archs = ROCM.archs(["gfx942"], RELEASE)
    assert ROCM.flags(section, archs, RELEASE).by_language == (
        ("HIP", ("--offload-arch=gfx942", "-O2")),
    )


@pytest.mark.parametrize("source", ["a.cu", "b.hip"])
def test_device_sources(source):
    assert ROCM.language_of(source) == "HIP"
