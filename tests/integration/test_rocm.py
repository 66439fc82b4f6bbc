"""A ROCm variant for all architectures on a machine without ROCm: Debian's HIP, any Torch.

Nothing here runs on an AMD GPU: what was compiled is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from tests.support.command_project import Bench, run
from tests.support.hip_bundles import DEVICE, bundled, extension, needed, section
from tests.support.stores import last_used

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]

VARIANT = "torch-stable-abi211-rocm72-x86_64-linux"
HIP = ("--toolchain", "debian-hip")
TOOLCHAIN = 4
"""Exit code when packages cannot be had."""


@pytest.fixture(scope="module")
def bench(example: Callable[[str], Bench], hip_cache: Path) -> Bench:
    return Bench(example("relu-stable-abi").root, hip_cache)


@pytest.fixture(scope="module")
def built(bench: Bench) -> Path:
    """The variant directory, built through the command."""
    listed = bench.kbuild("list-variants", "--variant", VARIANT, *HIP, "--json").stdout
    reason = json.loads(listed)[0]["reason"]
    if reason is not None:
        pytest.skip(reason)
    done = bench.run("build", "--variant", VARIANT, *HIP)
    if done.returncode == TOOLCHAIN:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return bench.root / "build" / VARIANT


def test_every_architecture_has_code(built: Path) -> None:
    found = bundled(section(built, ".hip_fatbin"))
    sizes = {name.removeprefix(DEVICE): size for name, size in found.items() if size}
    metadata = json.loads((built / "metadata.json").read_text())
    assert set(sizes) == set(metadata["backend"]["archs"])
    assert {"gfx90a", "gfx942", "gfx950", "gfx1201"} <= set(sizes)


def test_it_needs_the_runtime_of_that_rocm(built: Path) -> None:
    tags = extension(built).get_section_by_name(".dynamic").iter_tags()
    assert {"libtorch.so", "libamdhip64.so.7"} <= needed(built)
    assert not {tag.entry.d_tag for tag in tags} & {"DT_RPATH", "DT_RUNPATH"}


@pytest.mark.usefixtures("built")
def test_the_plan_says_that_it_is_experimental(bench: Bench) -> None:
    (plan,) = json.loads(bench.kbuild("plan", "--variant", VARIANT, *HIP, "--json").stdout)
    assert plan["toolchain"]["source"] == "debian-hip"
    assert ["support", "experimental"] in plan["toolchain"]["versions"]


def test_kbuild_reads_what_clang_lists(bench: Bench, built: Path, tmp_path: Path) -> None:
    (library,) = built.glob("*.so")
    image = tmp_path / "image"
    image.write_bytes(section(built, ".hip_fatbin"))
    (lister,) = last_used(bench.cache, "debian-hip").glob("**/bin/clang-offload-bundler")
    done = run((str(lister), "--list", "--type=o", f"--input={image}"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    targets = [line for line in done.stdout.split() if line.startswith(DEVICE)]
    found = read_device_code(library).images
    assert sorted(DEVICE + one.target for one in found) == sorted(targets)
    assert sum(one.size for one in found) == sum(bundled(image.read_bytes()).values())


def test_the_archs_check_has_nothing_to_say(bench: Bench, built: Path) -> None:
    done = bench.kbuild("check-abi", "--variant", built.name)
    assert "[archs]" not in done.stdout + done.stderr
