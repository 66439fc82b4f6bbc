"""The archs that metadata names against the device code of compiled libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.archs import ArchsCheck
from kbuild.checks.base import Finding, Output
from kbuild.plan.metadata import Metadata
from tests.support.device_code import LTO, MACHINE, PTX, REAL, bundle, carrying, fatbin

pytestmark = pytest.mark.compile

ID = "_relu_cuda_0a1b2c3"
FILE = f"{ID}.abi3.so"
CUDA = Metadata("relu", ID, 1, "mit", "cuda", archs=("10.0f", "8.0+PTX", "9.0a"))
ROCM = replace(CUDA, backend="rocm", archs=("gfx90a", "gfx942"))
CU130 = "torch213-cxx11-cu130-x86_64-linux"
ROCM72 = "torch213-cxx11-rocm72-x86_64-linux"
GOOD = fatbin((MACHINE, "80"), (PTX, "80"), (MACHINE, "90a"), (MACHINE, "100f"))
Holding = Callable[..., Output]


@pytest.fixture
def holding(make: Callable[..., Output], library: Callable[..., bytes], tmp_path: Path) -> Holding:
    """A variant whose library holds these sections."""

    def made(
        sections: dict[str, bytes],
        metadata: Metadata = CUDA,
        variant: str = CU130,
        source: str = "",
        flags: tuple[str, ...] = (),
    ) -> Output:
        data = carrying(library, tmp_path, sections, *flags, source=source)
        return make({FILE: data}, variant=variant, metadata=metadata)

    return made


def found(output: Output) -> list[tuple[str, str, str]]:
    return [(f.severity, f.where, f.what) for f in of(output)]


def of(output: Output) -> list[Finding]:
    check = ArchsCheck()
    return list(check.run(output)) if check.applies(output) else []


def cuda(*entries: tuple[int, str]) -> dict[str, bytes]:
    return {".nv_fatbin": fatbin(*entries), ".nvFatBinSegment": bytes(24)}


def test_sections_may_differ_in_archs(holding: Holding) -> None:
    one, other = fatbin((MACHINE, "80"), (PTX, "80")), fatbin((MACHINE, "90a"), (MACHINE, "100f"))
    assert found(holding({".nv_fatbin": one + bytes(8) + other})) == []


@pytest.mark.parametrize("feature", ["", "f"])
def test_a_feature_is_part_of_the_arch(holding: Holding, feature: str) -> None:
    output = holding(cuda((MACHINE, f"90{feature}")), replace(CUDA, archs=("9.0a",)))
    assert found(output) == [
        ("error", FILE, f"has code for 9.0{feature}, which `metadata.json` does not name"),
        ("error", FILE, "no library has code for 9.0a, which `metadata.json` names"),
    ]


STATIC = 'const char *says(void) { return "cublasStatus_t cublasCreate_v2(cublasContext**)"; }'


def test_a_static_library_brings_archs_of_its_own(holding: Holding) -> None:
    """Its 9.0 proves nothing for the kernel, which lacks it."""
    kernel = fatbin((MACHINE, "80"))
    blas = fatbin((MACHINE, "70"), (MACHINE, "90"), (PTX, "90"))
    archs = replace(CUDA, archs=("8.0", "9.0"))
    output = holding({".nv_fatbin": kernel + blas}, archs, source=STATIC)
    extra = "has code for 7.0 and PTX of 9.0, which `metadata.json` does not name"
    assert found(output) == [
        ("warning", FILE, f"{extra}; it seems to come from `cuBLAS`, linked statically"),
        ("error", FILE, "no library has code for 9.0, which `metadata.json` names"),
    ]


def test_all_code_is_that_of_a_static_library(holding: Holding) -> None:
    archs = replace(CUDA, archs=("8.0",))
    warning, error = found(holding(cuda((MACHINE, "80"), (MACHINE, "70")), archs, source=STATIC))
    assert warning[0] == "warning"
    assert error == ("error", FILE, "no library has code for 8.0, which `metadata.json` names")


def test_a_shared_library_brings_none(
    holding: Holding, library: Callable[..., bytes], tmp_path: Path
) -> None:
    (tmp_path / "libcublas.so.13").write_bytes(library("int x;", soname="libcublas.so.13"))
    flags = ("-Wl,--no-as-needed", str(tmp_path / "libcublas.so.13"))
    archs = replace(CUDA, archs=("8.0",))
    output = holding(cuda((MACHINE, "80"), (MACHINE, "70")), archs, source=STATIC, flags=flags)
    assert [(f.severity, f.what.count("cuBLAS")) for f in of(output)] == [("error", 0)]


def test_device_code_that_was_taken_away(holding: Holding) -> None:
    (finding,) = of(holding({".nvFatBinSegment": bytes(24)}))
    assert finding.severity == "error"
    assert finding.what.startswith("registers device code, but contains none")


def test_code_that_waits_for_the_device_linker(holding: Holding) -> None:
    sections = {"__nv_relfatbin": GOOD, ".nvFatBinSegment": bytes(24)}
    ((severity, _, what),) = found(holding(sections))
    assert severity == "error"
    assert "never linked for the device" in what


def test_code_for_link_time_optimisation_is_named(holding: Holding) -> None:
    output = holding(cuda((MACHINE, "80"), (LTO, "90")), replace(CUDA, archs=("8.0",)))
    what = "has ir of 9.0, which no GPU or driver can load"
    assert found(output) == [("info", FILE, what)]


@pytest.mark.parametrize("archs", [None, ()])
def test_compiled_gpu_variants_must_list_archs(
    holding: Holding, archs: tuple[str, ...] | None
) -> None:
    listed, missing = found(holding({".nv_fatbin": GOOD}, replace(CUDA, archs=archs)))
    assert listed[0] == "info"
    what = "`backend.archs` is missing for a compiled cuda variant"
    assert missing == ("error", "metadata.json", what)


class TestRocm:
    def test_code_for_one_setting_is_less(self, holding: Holding) -> None:
        code = bundle("gfx90a:xnack+", "gfx942:sramecc+:xnack-")
        assert found(holding({".hip_fatbin": code}, ROCM, ROCM72)) == [
            ("warning", FILE, "its code for gfx90a runs only where the GPU is set to xnack+"),
            (
                "warning",
                FILE,
                "its code for gfx942 runs only where the GPU is set to sramecc+ xnack-",
            ),
        ]

    def test_what_cannot_be_unpacked_is_said(
        self, holding: Holding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("compression.zstd", "backports.zstd"):
            monkeypatch.setitem(sys.modules, name, None)
        data = (REAL / "clang21.hipfb").read_bytes()
        (finding,) = of(holding({".hip_fatbin": data}, ROCM, ROCM72))
        assert finding.severity == "warning"
        assert "backports.zstd` installs" in finding.hint
