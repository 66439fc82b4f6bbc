"""The flags check: code for the machine that builds."""

from __future__ import annotations

import pytest

from kbuild.checks.flags import environment_findings, machine_flags


@pytest.mark.parametrize(
    ("flags", "severity", "named"),
    [
        (["-O3", "-march=native"], "error", "-march=native"),
        (["-mcpu=native"], "error", "-mcpu=native"),
        (["-xHost"], "error", "-xHost"),
        (["-mtune=native"], "warning", "-mtune=native"),
        (["-Xcompiler=-O3,-march=native"], "error", "-march=native"),
        (["-Xcompiler", "-march=native"], "error", "-march=native"),
        (["--compiler-options='-Wall -march=native'"], "error", "-march=native"),
        (["-march", "native"], "error", "-march=native"),
        (["-arch=native"], "error", "-arch=native"),
        (["-arch", "native"], "error", "-arch=native"),
        (["--gpu-architecture=native"], "error", "--gpu-architecture=native"),
        (["-arch=all"], "error", "-arch=all"),
        (["-arch=all-major"], "error", "-arch=all-major"),
        (["--offload-arch=native"], "error", "--offload-arch=native"),
    ],
)
def test_flags_for_the_machine_that_builds(flags: list[str], severity: str, named: str) -> None:
    ((place, found),) = machine_flags(flags)
    assert found.severity == severity
    assert found.what.startswith(f"`{named}` ")
    assert place == len(flags) - 1


@pytest.mark.parametrize(
    "flags",
    [
        ["-march=x86-64-v3", "-mavx2", "-mtune=generic"],
        ["-arch=sm_90", "-gencode=arch=compute_90,code=sm_90"],
        ["-DNAME=native", "-DARCH=-march=natively", "-Iall"],
        ["-DA", "native"],
    ],
)
def test_other_flags(flags: list[str]) -> None:
    assert list(machine_flags(flags)) == []


def test_variables_with_flags() -> None:
    environ = {"NVCC_APPEND_FLAGS": "-O2 -arch native", "CXXFLAGS": "-march=native"}
    found = {finding.where: finding.what.split("`")[1] for finding in environment_findings(environ)}
    assert found == {"NVCC_APPEND_FLAGS": "-arch=native"}
