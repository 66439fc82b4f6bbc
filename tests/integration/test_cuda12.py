"""A CUDA 12.6 variant where no CUDA 12 is installed: Debian's nvcc. Fetches 105 MB, one unit.

A test accepts no licence in anybody's name: these run where `KBUILD_ACCEPT_LICENSE` says that
somebody did.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command_project import CommandProject, run

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]

VARIANT = "torch-stable-abi211-cu126-x86_64-linux"
NVCC = ("--toolchain", "debian-nvcc", "--variant", VARIANT)
ACCEPTED = {"KBUILD_ACCEPT_LICENSE": "nvidia-cuda-eula"}
TOOLCHAIN = 4
"""Exit code when something cannot be had."""


@pytest.fixture(scope="module")
def bench(example: Callable[[str], CommandProject]) -> CommandProject:
    return example("relu-stable-abi")


@pytest.fixture(scope="module")
def built(bench: CommandProject) -> Path:
    """The variant directory, built through the command for one architecture."""
    if "nvidia-cuda-eula" not in os.environ.get("KBUILD_ACCEPT_LICENSE", ""):
        pytest.skip("NVIDIA's licence is not accepted: KBUILD_ACCEPT_LICENSE=nvidia-cuda-eula")
    listed = bench.kbuild("list-variants", *NVCC, "--json", env=ACCEPTED).stdout
    reason = json.loads(listed)[0]["reason"]
    if reason is not None:
        pytest.skip(reason)
    done = bench.run("build", *NVCC, "--arch", "9.0", env=ACCEPTED)
    if done.returncode == TOOLCHAIN:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert "compiled by nvcc 12.4.131 (Debian trixie) for a CUDA 12.6 variant" in done.stderr
    return bench.root / "build" / VARIANT


def test_it_needs_the_runtime_of_cuda_12(built: Path) -> None:
    (extension,) = built.glob("*.so")
    with extension.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        assert {"libtorch.so", "libcudart.so.12"} <= {tag.needed for tag in tags}


def test_it_has_code_for_that_architecture(bench: CommandProject, built: Path) -> None:
    (extension,) = built.glob("*.so")
    (cuobjdump,) = bench.cache.glob("store/debian-nvcc-*/root/bin/cuobjdump")
    listed = run((str(cuobjdump), "--list-elf", str(extension)), cwd=built).stdout
    assert [line.split(".")[-2] for line in listed.splitlines()] == ["sm_90"]


@pytest.mark.usefixtures("built")
def test_the_plan_says_what_compiled_it(bench: CommandProject) -> None:
    (plan,) = json.loads(bench.kbuild("plan", *NVCC, "--json", env=ACCEPTED).stdout)
    versions = dict(plan["toolchain"]["versions"])
    assert versions["nvcc"] == "12.4.131 (Debian trixie) for a CUDA 12.6 variant"
    assert versions["license"] == "nvidia-cuda-eula, accepted by KBUILD_ACCEPT_LICENSE"


def test_nothing_is_fetched_before_the_licence_is_accepted(bench: CommandProject) -> None:
    refused = bench.kbuild("build", *NVCC, expect=TOOLCHAIN, env={"KBUILD_ACCEPT_LICENSE": ""})
    assert "NVIDIA's End User License Agreement" in refused.stderr
    assert "KBUILD_ACCEPT_LICENSE=nvidia-cuda-eula" in refused.stderr
