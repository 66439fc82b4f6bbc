"""What kbuild reads from device code is what the vendors' own tools list."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.backends.capability import Capability
from kbuild.checks.readers.device_code import read_device_code
from kbuild.plan.metadata import Metadata, parse_metadata
from tests.support.command_project import CommandProject, run
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.network, pytest.mark.compile]

LISTER = "nvidia-cuda-cuobjdump==13.2.86"
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
WHEELS = ("--toolchain", "wheels", "--jobs", "1")
TOOLCHAIN = 4
"""Exit code when packages cannot be had."""
KINDS = {"elf": "machine", "ptx": "ptx"}
SPEC = re.compile(r"^Fatbin (\w+) code:\n=+\narch = sm_(\d+)(\d)([af]?)$", re.MULTILINE)


@pytest.fixture(scope="session")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's tool in a folder of its own."""
    folder = tmp_path_factory.mktemp("cuobjdump")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
    done = run((*pip, str(folder), LISTER), cwd=folder)
    if done.returncode:
        pytest.skip(f"{LISTER} cannot be had: {done.stderr.strip()[-200:]}")
    (found,) = folder.rglob("bin/cuobjdump")
    return found


@pytest.fixture(scope="session")
def stable(
    tmp_path_factory: pytest.TempPathFactory, warm: Callable[[Path], Path]
) -> CommandProject:
    """One template kernel for the stable ABI, which every architecture compiles in a second."""
    if not shutil.which("c++"):
        pytest.skip("needs a C++ compiler: apt install g++")
    folder = tmp_path_factory.mktemp("tiny")
    bench = write_tiny(folder, "cuda", warm(folder / "cache"))
    build = bench.root / "build.toml"
    build.write_text(build.read_text().replace("[torch]", '[torch]\nstable-abi = "2.11"'))
    return bench


@pytest.fixture(scope="session")
def built(stable: CommandProject) -> Path:
    """A variant for all architectures, on a machine without CUDA."""
    done = stable.run("build", "--variant", VARIANT, *WHEELS)
    if done.returncode == TOOLCHAIN:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return stable.root / "build" / VARIANT


def extension(folder: Path) -> Path:
    (found,) = folder.glob("*.so")
    return found


def listed(cuobjdump: Path, library: Path) -> Counter[tuple[str, str]]:
    """How many images of each arch and kind NVIDIA's tool finds."""
    done = run((str(cuobjdump), str(library)), cwd=library.parent)
    assert done.returncode == 0, done.stderr
    found = SPEC.findall(done.stdout)
    return Counter(
        (f"{major}.{minor}{feature}", KINDS[kind]) for kind, major, minor, feature in found
    )


def metadata(folder: Path) -> Metadata:
    return parse_metadata((folder / "metadata.json").read_text())


def test_the_images_are_those_that_nvidia_lists(built: Path, cuobjdump: Path) -> None:
    images = read_device_code(extension(built)).images
    own = Counter((image.arch, image.kind) for image in images)
    assert own == listed(cuobjdump, extension(built))
    assert own["12.1", "ptx"] == 1


def test_metadata_names_what_nvidia_lists(built: Path, cuobjdump: Path) -> None:
    named = [Capability.parse(arch) for arch in metadata(built).archs or ()]
    expected = {(str(arch.target), "machine") for arch in named}
    expected |= {(str(arch.target), "ptx") for arch in named if arch.ptx}
    assert set(listed(cuobjdump, extension(built))) == expected
