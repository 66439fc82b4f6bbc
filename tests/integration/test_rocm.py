"""A ROCm variant for all architectures on a machine without ROCm: Debian's HIP, any Torch.

Nothing here runs on an AMD GPU: what was compiled is looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from integration_bench import Bench

from kbuild import pipeline
from kbuild.build.compile import Compilation, default_jobs
from kbuild.build.workspace import Workspace
from kbuild.errors import ToolchainError
from kbuild.matrix.selection import Selection
from kbuild.plan import VariantPlan
from kbuild.project import open_project
from kbuild.run import LocalRunner
from kbuild.toolchains import Toolchain
from kbuild.toolchains.debian_hip import DebianHip
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import Host

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]

VARIANT = "torch-stable-abi211-rocm72-x86_64-linux"
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
DEVICE = "hipv4-amdgcn-amd-amdhsa--"


def provisioned(source: DebianHip, plan: VariantPlan) -> Toolchain:
    reason = source.refuses(plan.requires)
    if reason is not None:
        pytest.skip(reason)
    try:
        return source.provision(plan.requires)
    except ToolchainError as error:
        pytest.skip(str(error))


def bundled(image: bytes) -> dict[str, int]:
    """Target -> size of its code object (clang's offload bundle format)."""
    assert image.startswith(MAGIC)
    (count,) = struct.unpack_from("<Q", image, len(MAGIC))
    at, found = len(MAGIC) + 8, {}
    for _ in range(count):
        _, size, length = struct.unpack_from("<QQQ", image, at)
        at += 24
        found[image[at : at + length].decode()] = size
        at += length
    return found


@pytest.fixture(scope="module")
def built(example: Callable[[str], Bench], tmp_path_factory) -> tuple[VariantPlan, Path]:
    bench, runner = example("relu-stable-abi"), LocalRunner()
    selection = Selection(globs=(VARIANT,))
    (plan,) = pipeline.plan(open_project(bench.root), selection, runner)
    cache = FactCache(tmp_path_factory.mktemp("cache"))
    toolchain = provisioned(DebianHip(Host(runner, cache)), plan)
    plan = plan.with_toolchain(toolchain.summary)
    space = Workspace(bench.root, plan.variant)
    with space.locked():
        jobs = default_jobs()
        staged = Compilation(plan, toolchain, space, runner, jobs, lambda *_: None).run()
    (extension,) = staged.folder.glob("*.so")
    return plan, extension


def test_every_architecture_has_code(built) -> None:
    plan, extension = built
    with extension.open("rb") as file:
        image = ELFFile(file).get_section_by_name(".hip_fatbin").data()
    sizes = {name.removeprefix(DEVICE): size for name, size in bundled(image).items() if size}
    assert set(sizes) == set(plan.archs)
    assert {"gfx90a", "gfx942", "gfx950", "gfx1201"} <= set(sizes)


def test_it_needs_the_runtime_of_that_rocm(built) -> None:
    _, extension = built
    with extension.open("rb") as file:
        tags = list(ELFFile(file).get_section_by_name(".dynamic").iter_tags())
    needed = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
    assert {"libtorch.so", "libamdhip64.so.7"} <= needed
    assert not {tag.entry.d_tag for tag in tags} & {"DT_RPATH", "DT_RUNPATH"}


def test_the_plan_says_that_it_is_experimental(built) -> None:
    plan, _ = built
    assert plan.toolchain is not None
    assert plan.toolchain.source == "debian-hip"
    assert ("support", "experimental") in plan.toolchain.versions
