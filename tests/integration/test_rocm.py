"""A ROCm variant of the stable ABI, built against any Torch by a ROCm on this machine.

Nothing here runs on an AMD GPU: what was compiled is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from kbuild.toolchains.rocm import RocmInstallation
from tests.support.command_project import CommandProject, run
from tests.support.hip_bundles import DEVICE, bundled, extension, needed, section
from tests.support.rocm import ARCHS

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

VARIANT = "torch-stable-abi211-rocm72-x86_64-linux"


@pytest.fixture(scope="module")
def bench(
    example: Callable[[str], CommandProject], rocm: RocmInstallation
) -> Iterator[CommandProject]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(rocm.path))
        yield example("relu-stable-abi")


@pytest.fixture(scope="module")
def built(bench: CommandProject) -> Path:
    """The variant directory, built through the command."""
    archs = (word for arch in ARCHS for word in ("--arch", arch))
    bench.kbuild("build", "--variant", VARIANT, *archs)
    return bench.root / "build" / VARIANT


def test_every_architecture_has_code(built: Path) -> None:
    found = bundled(section(built, ".hip_fatbin"))
    sizes = {name.removeprefix(DEVICE): size for name, size in found.items() if size}
    metadata = json.loads((built / "metadata.json").read_text())
    assert set(sizes) == set(metadata["backend"]["archs"]) == set(ARCHS)


def test_it_needs_the_runtime_of_that_rocm(built: Path) -> None:
    tags = extension(built).get_section_by_name(".dynamic").iter_tags()
    assert {"libtorch.so", "libamdhip64.so.7"} <= needed(built)
    assert not {tag.entry.d_tag for tag in tags} & {"DT_RPATH", "DT_RUNPATH"}


@pytest.mark.usefixtures("built")
def test_the_plan_names_the_toolchain(bench: CommandProject) -> None:
    (plan,) = json.loads(bench.kbuild("plan", "--variant", VARIANT, "--json").stdout)
    versions = dict(plan["toolchain"]["versions"])
    assert plan["toolchain"]["source"] == "rocm"
    assert versions["rocm"].startswith("7.2")


def test_kbuild_reads_what_clang_lists(built: Path, rocm: RocmInstallation, tmp_path: Path) -> None:
    (library,) = built.glob("*.so")
    image = tmp_path / "image"
    image.write_bytes(section(built, ".hip_fatbin"))
    assert rocm.compiler is not None
    lister = rocm.compiler.with_name("clang-offload-bundler")
    done = run((str(lister), "--list", "--type=o", f"--input={image}"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    targets = [line for line in done.stdout.split() if line.startswith(DEVICE)]
    found = read_device_code(library).images
    assert sorted(DEVICE + one.target for one in found) == sorted(targets)
    assert sum(one.size for one in found) == sum(bundled(image.read_bytes()).values())
