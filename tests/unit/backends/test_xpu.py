"""SYCL flags: what is compiled ahead of time, with and without sycl-tla."""

from __future__ import annotations

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.base import Archs
from kbuild.backends.xpu import XpuSection
from kbuild.system.version import Version

XPU = BACKENDS.get("xpu")


def section(*depends: str, flags: tuple[str, ...] = ()) -> XpuSection:
    return XpuSection.model_validate(
        {"backend": "xpu", "depends": depends, "src": ["a.cpp"], "sycl-flags": flags}
    )


def link(release: str, *sections: XpuSection) -> str:
    return " ".join(XPU.link_flags(sections, Version.parse(release)))


def test_sycl_tla_is_compiled_on_the_device_before_2026():
    text = link("2025.3.2", section("torch"), section("torch", "sycl_tla"))
    assert "-fsycl-targets=spir64 " in text
    assert "-device" not in text
    assert "+SPV_INTEL_split_barrier" in text


@pytest.mark.parametrize(
    ("flags", "devices"),
    [((), "pvc,bmg-g21,cri "), (("-D__SYCL_TARGET_INTEL_GPU_CRI__=1",), "cri ")],
)
def test_sycl_tla_from_2026_on(flags, devices):
    assert f"-device {devices}" in link("2026.0.0", section("sycl_tla", flags=flags))


def test_units_are_compiled_for_the_same_targets_with_own_flags_last():
    own = section("torch", flags=("-fsycl-unnamed-lambda",))
    ((language, flags),) = XPU.flags(own, Archs(), Version.parse("2026.0.0")).by_language
    assert language == "CXX"
    assert "-fsycl-targets=spir64_gen,spir64" in flags
    assert flags[-1] == "-fsycl-unnamed-lambda"
