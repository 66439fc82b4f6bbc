"""What `kbuild init` writes for each language and framework builds as it is, with no finding.

Fetches up to 500 MB.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject, run
from tests.support.stores import dsl_store, warm_cache
from tests.support.tvm_ffi_interpreter import interpreter

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="DSLs have no wheels for it"),
]
ENVIRONMENTS = {
    "cute": ("cute-4.8.1", "nvidia-cutlass-dsl"),
    "cutile": ("cutile-1.7.0", "cuda-tile"),
    "helion": ("helion-1.5.1", "helion"),
    "ninetoothed": ("ninetoothed-0.26.0", "ninetoothed"),
    "tilelang": ("tilelang-0.1.15", "tilelang"),
    "triton": ("triton-3.9.0", "triton"),
}
"""Language -> its folder in the store, and the distribution that it is fetched from."""
NAMES = {
    "torch": "torch213-cxx11",
    "torch-stable-abi": "torch-stable-abi211",
    "tvm-ffi": "tvm-ffi01",
}
"""Framework -> how the names of its variants start."""
WHEELS = {"KBUILD_TOOLCHAIN": "wheels"}
ON_GPUS = [
    ("cute", "torch-stable-abi"),
    ("cutile", "torch-stable-abi"),
    # Helion takes 20 s to be imported.
    pytest.param("helion", "torch-stable-abi", marks=pytest.mark.full),
    ("ninetoothed", "tvm-ffi"),
    ("triton", "tvm-ffi"),
    ("c++", "torch"),
]
"""Every language, but for that of ON_CPU, and every framework; all pairs differ in nothing else."""
ON_CPU = [("tilelang", "torch"), ("c++", "torch-stable-abi"), ("c++", "tvm-ffi")]


def written(
    language: str, framework: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> CommandProject:
    """A new project, and a kbuild that has the language or can fetch it."""
    entry = ENVIRONMENTS.get(language, ENVIRONMENTS["triton"])
    store = dsl_store(*entry, tmp_path_factory)
    cache = warm_cache(folder / "cache", store, tmp_path_factory)
    pair = ("--language", language, "--framework", framework)
    CommandProject(folder, cache).kbuild("init", "--name", "org/demo", *pair)
    return CommandProject(folder / "demo", cache)


def judged(bench: CommandProject) -> dict[str, list[str]]:
    """Variant -> what a strict check finds that is more than a note."""
    done = bench.kbuild("check-builds", "--strict", "--skip", "manylinux", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    return {
        built["name"]: [one["message"] for one in built["findings"] if one["severity"] != "info"]
        for built in target["outputs"]
    }


@pytest.mark.parametrize(("language", "framework"), ON_GPUS)
def test_it_is_compiled_for_gpus(
    language: str, framework: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = written(language, framework, tmp_path, tmp_path_factory)
    variant = f"{NAMES[framework]}-cu130-x86_64-linux"
    if language == "helion":
        bench.kbuild("capture", env=WHEELS)
    bench.kbuild("check", env={"HF_HUB_OFFLINE": "1"})
    options = ("--variant", variant, "--arch", "9.0")
    bench.kbuild("build", *options, env=WHEELS)
    assert judged(bench) == {variant: []}
    card = (bench.root / "build" / "CARD.md").read_text()
    assert "Multiply every element by" in card
    assert ("nvidia-cutlass-dsl" in card) is (language == "cute")


@pytest.mark.parametrize(("language", "framework"), ON_CPU)
def test_it_passes_its_tests_on_the_cpu(
    language: str, framework: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bench = written(language, framework, tmp_path, tmp_path_factory)
    variant = f"{NAMES[framework]}-cpu-x86_64-linux"
    bench.kbuild("build", "--variant", variant, env=WHEELS)
    assert judged(bench) == {variant: []}
    python = interpreter(tmp_path) if framework == "tvm-ffi" else Path(sys.executable)
    done = bench.kbuild("test", "--python", str(python))
    assert re.search(r" \d\d passed in ", done.stdout + done.stderr)
    assert "equal to Torch" in run((str(python), "example.py"), cwd=bench.root).stdout


@pytest.mark.quick
def test_a_python_only_project_in_triton(tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    """There is nothing to compile; without a GPU its tests are skipped."""
    bench = CommandProject(tmp_path / "demo", warm(tmp_path / "cache"))
    pair = ("--language", "triton", "--framework", "torch-noarch")
    CommandProject(tmp_path, bench.cache).kbuild("init", "--name", "org/demo", *pair)
    outcomes = bench.build()
    assert {name: entry["status"] for name, entry in outcomes.items()} == {
        "torch-cuda": "built",
        "torch-rocm": "built",
    }
    assert judged(bench) == {"torch-cuda": [], "torch-rocm": []}
