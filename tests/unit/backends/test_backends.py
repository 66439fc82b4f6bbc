"""What holds for every backend; the archs of ROCm and the flags of XPU."""

from __future__ import annotations

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.base import Archs
from kbuild.backends.rocm import RocmSection
from kbuild.backends.xpu import XpuSection
from kbuild.plan.metadata import Metadata
from kbuild.system import rendering
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


CMAKE_LANGUAGES = {"C", "CXX", "CUDA", "HIP", "OBJC", "OBJCXX"}
COMPILED = [backend for backend in BACKENDS if backend.section is not None]


@pytest.mark.parametrize("backend", COMPILED, ids=lambda backend: backend.name)
def test_every_language_is_cmakes_or_ours(backend):
    for language in backend.languages:
        ours = rendering.exists(f"project/cmake/languages/{language}.cmake")
        assert ours or language in CMAKE_LANGUAGES


@pytest.mark.parametrize("name", [*BACKENDS.names(), "acme"])
def test_the_client_reads_metadata_of_those_that_say_so(name):
    client, known = pytest.importorskip("kernels"), BACKENDS.find(name)
    text = Metadata("relu", "_relu_x_1", 1, "mit", name).to_json_text()
    if known is not None and known.in_client:
        assert client.Metadata.from_bytes(text.encode()).id == "_relu_x_1"
    else:
        with pytest.raises(ValueError, match="Cannot parse metadata"):
            client.Metadata.from_bytes(text.encode())


def test_metal_shaders_and_hosts():
    metal = BACKENDS.get("metal")
    assert metal.language_of("a.metal") == "METAL"
    assert metal.language_of("a.mm") == "OBJCXX"
    assert metal.language_of("a.m") == "OBJC"
