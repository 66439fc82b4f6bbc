"""Torch's full ABI for ROCm without ROCm: translated headers, or those of a given wheel.

The wheel is made here, of the installed Torch's headers and their translation: no build of Torch
for ROCm is on the package index. Nothing here runs on an AMD GPU.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import Bench
from tests.support.hip_bundles import DEVICE, bundled, needed, section
from tests.support.stores import last_used
from tests.support.torch_wheels import TAG, version_file
from tests.support.wheel_index import make_wheel

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]

SOURCES = Path(__file__).parent / "sources" / "hip"
HIP = ("--toolchain", "debian-hip")
TOOLCHAIN = 4
"""Exit code when packages cannot be had."""
DEVICE_CODE = """\
[general]
name = "relu"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["rocm"]

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]

[kernel.relu]
backend = "rocm"
depends = ["torch"]
include = ["torch-ext"]
src = ["relu_cuda/relu.cu"]
"""
PACKAGE = '''\
"""ReLU on AMD GPUs."""

import torch

from ._ops import ops

__all__ = ["relu"]


def relu(x: torch.Tensor) -> torch.Tensor:
    """The positive part of `x`, a contiguous tensor."""
    out = torch.empty_like(x)
    ops.relu(out, x)
    return out
'''


@pytest.fixture(scope="module")
def release() -> str:
    """`2.13`, of the installed Torch."""
    from importlib import metadata

    return ".".join(metadata.version("torch").split(".")[:2])


@pytest.fixture(scope="module")
def variant(release: str) -> str:
    return f"torch{release.replace('.', '')}-cxx11-rocm72-x86_64-linux"


@pytest.fixture(scope="module")
def relu(example: Callable[[str], Bench], hip_cache: Path) -> Bench:
    return Bench(example("relu").root, hip_cache)


def build(bench: Bench, variant: str, *options: str) -> Path:
    """The variant directory; skips where the packages cannot be had."""
    asked = ("--variant", variant, *HIP, *options)
    listed = bench.kbuild("list-variants", "--variant", variant, *HIP, "--json").stdout
    reason = json.loads(listed)[0]["reason"]
    if reason is not None:
        pytest.skip(reason)
    done = bench.run("build", *asked)
    if done.returncode == TOOLCHAIN and "fetched" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return bench.root / "build" / variant


def record(bench: Bench, variant: str, *options: str) -> dict[str, str]:
    """What the plan says of the toolchain's versions."""
    asked = ("--variant", variant, *HIP, *options, "--json")
    (plan,) = json.loads(bench.kbuild("plan", *asked).stdout)
    return dict(plan["toolchain"]["versions"])


@pytest.fixture(scope="module")
def built(relu: Bench, variant: str) -> Path:
    return build(relu, variant)


def test_every_architecture_has_code(built: Path) -> None:
    sizes = bundled(section(built, ".hip_fatbin"))
    metadata = json.loads((built / "metadata.json").read_text())
    assert {name.removeprefix(DEVICE) for name, size in sizes.items() if size} == set(
        metadata["backend"]["archs"]
    )
    assert {"gfx90a", "gfx942", "gfx950", "gfx1201"} <= set(metadata["backend"]["archs"])


def test_it_needs_torch_for_rocm(built: Path) -> None:
    assert {"libtorch_hip.so", "libc10_hip.so", "libamdhip64.so.7"} <= needed(built)


def test_the_record_says_that_headers_were_translated(
    built: Path, relu: Bench, variant: str
) -> None:
    said = record(relu, variant)
    assert said["support"] == "experimental"
    assert said["torch-headers"].endswith("translated to HIP")


@pytest.mark.usefixtures("built")
def test_torch_headers_in_device_code(relu: Bench, variant: str, tmp_path: Path) -> None:
    """`torch/all.h`, streams, guards and dispatch; one architecture is enough here."""
    root = tmp_path / "relu"
    shutil.copytree(SOURCES, root / "torch-ext", ignore=shutil.ignore_patterns("*.cu"))
    for path, text in {
        "build.toml": DEVICE_CODE,
        "torch-ext/relu/__init__.py": PACKAGE,
        "relu_cuda/relu.cu": (SOURCES / "relu.cu").read_text(),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    folder = build(Bench(root, relu.cache), variant, "--arch", "gfx942")
    assert [name for name, size in bundled(section(folder, ".hip_fatbin")).items() if size] == [
        f"{DEVICE}gfx942"
    ]


@pytest.fixture(scope="module")
def wheel(relu: Bench, built: Path, release: str, tmp_path_factory) -> Path:
    """The installed Torch's headers with their translation, as a wheel for ROCm."""
    version = f"{release}.0+rocm7.2"
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    translated = last_used(relu.cache, "torch-hip-full-headers")
    members = {
        f"torch/{path.relative_to(torch)}": path.read_bytes()
        for folder in ("include", "utils/hipify", "share/cmake")
        for path in sorted((torch / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    for path in translated.rglob("*.h"):
        members[f"torch/include/{path.relative_to(translated)}"] = path.read_bytes()
    members["torch/version.py"] = version_file(version, hip="7.2.53211")
    members[f"torch-{version}.dist-info/WHEEL"] = f"Tag: {TAG}\n".encode()
    return make_wheel(tmp_path_factory.mktemp("wheels"), "torch", version, members, tag=TAG)


def test_a_given_wheel_is_built_against_as_it_is(relu: Bench, variant: str, wheel: Path) -> None:
    options = ("--torch-wheel", str(wheel), "--arch", "gfx942")
    folder = build(relu, variant, *options)
    assert {"libtorch_hip.so", "libc10_hip.so"} <= needed(folder)
    said = record(relu, variant, *options)
    assert "torch-headers" not in said
    assert said["torch-wheel"].startswith(f"{wheel.name} sha256:")
    answer = json.loads(relu.kbuild("build", "--variant", variant, *HIP, *options, "--json").stdout)
    assert [entry["status"] for entry in answer["variants"]] == ["up-to-date"]


def test_a_wheel_for_another_rocm_is_an_error(relu: Bench, variant: str, wheel: Path) -> None:
    other = variant.replace("rocm72", "rocm71")
    done = relu.run("build", "--variant", other, *HIP, "--torch-wheel", str(wheel))
    assert done.returncode == 2
    assert f"{wheel.name} is Torch" in done.stderr
    assert other in done.stderr
