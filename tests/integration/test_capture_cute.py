"""Calls of `cute.compile` from a recording to a package without CuTe DSL. Fetches 110 MB."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kbuild.checks.readers.device_code import read_device_code
from tests.support.command_project import ROOT, CommandProject, run
from tests.support.dsl.cute_kernels import VERSION
from tests.support.stores import dsl_store, warm_cache

pytestmark = [pytest.mark.network, pytest.mark.compile]
VARIANT = "tvm-ffi01-cu130-x86_64-linux"
LOAD = """
import importlib.util, sys, types, tvm_ffi

folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "package", folder + "/__init__.py", submodule_search_locations=[folder]
)
package = importlib.util.module_from_spec(spec)
sys.modules["package"] = package
spec.loader.exec_module(package)
cuda = types.SimpleNamespace(get_device_capability=lambda: (9, 0), get_device_name=lambda: "H200")
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
runtime = sys.modules["package._launches"].execute.__self__
names = sys.modules["package._launch_cutlass"].DTYPES
"""
JIT = f"""{LOAD}
function = package.compiled_scale(names["Float32"], 64, package.Mode.PLAIN)
print(type(function).__name__ == "CompiledFunction", callable(function))
"""
USE = f"""
import sys

for name in ("cutlass", "cuda", "triton"):
    sys.modules[name] = None
{LOAD}
runtime._loaded, load = (lambda record: record in runtime._places), runtime._loaded
for dtype in ("Float16", "BFloat16"):
    print(package.compiled_scale(names[dtype], 64, package.Mode.PLAIN))
    print(package.compiled_scale(names[dtype], 64, package.Mode.SQUARE, 2))
print(package.tuned_scale(names["Float16"], 64))
runtime._loaded = load
for call in (
    lambda: package.compiled_scale(names["Float32"], 64, package.Mode.PLAIN),
    lambda: runtime._module("cutlass.cute").make_layout((1, 2)),
    lambda: runtime.compile(lambda x: x, 1, options="--enable-tvm-ffi"),
    lambda: runtime.compile(package.scale, 1),
):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dsl_store(f"cute-{VERSION}", "nvidia-cutlass-dsl", tmp_path_factory)


@pytest.fixture(scope="module")
def project(store: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    folder = tmp_path_factory.mktemp("cute")
    left = shutil.ignore_patterns("build", ".kbuild", "__pycache__", "compare.py")
    shutil.copytree(ROOT / "tests" / "gpu" / "captured_cute", folder / "project", ignore=left)
    cache = warm_cache(folder / "cache", store, tmp_path_factory)
    return CommandProject(folder / "project", cache)


@pytest.fixture(scope="module")
def environment(store: Path) -> Path:
    """The folder in which CuTe DSL is installed, with TVM-FFI."""
    roots = store.glob(f"cute-{VERSION}-*/root")
    return next(root for root in roots if not (root / "triton").exists())


def recorded(project: CommandProject, environment: Path, expect: int = 0) -> str:
    """The output of a recording, in the environment that compiles."""
    paths = (project.root, environment, environment / "nvidia_cutlass_dsl" / "dsl_packages")
    path = os.pathsep.join(map(str, paths))
    words = ("capture", "--record", "--no-run", "--replace", "--", sys.executable, "calls.py")
    return project.kbuild(*words, expect=expect, env={"PYTHONPATH": path}).stderr


def test_from_a_recording_to_a_package(project: CommandProject, environment: Path) -> None:
    recorded(project, environment)
    functions = json.loads((project.root / "captured" / "ops.json").read_text())["functions"]
    tuned, function = sorted(functions, key=lambda each: len(each["launches"]))
    assert (function["source"], function["function"]) == ("scale_ops/scale.py", "SignedScale")
    # The first candidate that fits, since nothing is measured without a GPU.
    assert [row["config"] for row in tuned["tuned"]] == [{"threads": 64}] * 2
    # The author's code takes other options for each of the two, except for the tuned call.
    archs = sorted(launch["archs"] for launch in function["launches"])
    assert archs == [["10.0a"]] * 4 + [["10.0a", "9.0a"]] + [["9.0a"]] * 4
    project.commit()
    built = project.built("--toolchain", "wheels", "--variant", VARIANT)
    (extension,) = Path(built["path"]).glob("*.so")
    archs = [image.arch for image in read_device_code(extension).images]
    assert sorted(archs) == ["10.0a"] * 5 + ["9.0a"] * 5
    # The author's files import it, and find what the package has in its place.
    assert "cutlass" not in project.kbuild("check", built["path"]).stderr
    words = (sys.executable, "-c", USE, built["path"])
    done = run(words, cwd=project.cache, env={"PYTHONPATH": str(environment)})
    assert done.returncode == 0, done.stderr
    *found, missing, kernel_only, foreign, options = done.stdout.splitlines()
    assert found == ["True"] * 5
    assert missing.startswith(
        '`cute.compile` was not recorded for {"callable": {"object": {"call":'
    )
    assert missing.endswith("`kbuild capture --record -- COMMAND`")
    assert kernel_only.startswith("`cute.make_layout` was called outside of a kernel")
    assert foreign.endswith("not of these files cannot be recorded")
    assert options.startswith("`cute.compile` with `options=''`")


def test_the_dsl_compiles_other_calls(project: CommandProject, environment: Path) -> None:
    file = project.root / "build.toml"
    text = file.read_text()
    file.write_text(text.replace("launches =", 'fallback = "jit"\nlaunches ='))
    project.commit()
    try:
        built = project.built("--toolchain", "wheels", "--variant", VARIANT)
    finally:
        file.write_text(text)
    paths = (environment, environment / "nvidia_cutlass_dsl" / "dsl_packages")
    env = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "CUTE_DSL_ARCH": "sm_90a"}
    words = (sys.executable, "-c", JIT, built["path"])
    done = run(words, cwd=project.cache, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("written", "instead", "problem"),
    [
        (
            "self.shapes = [(1, 2)",
            "self.shapes = [lambda: 1, (1, 2)",
            "is compiled with `Scale.__init__.<locals>",
        ),
        (
            "return cute.compile(",
            "return cute.compile[cute.OptLevel(2)](",
            "is compiled with `cute.compile[...]`, whose options kbuild does not know",
        ),
    ],
)
def test_a_call_that_cannot_be_recorded_is_named(
    project: CommandProject, environment: Path, written: str, instead: str, problem: str
) -> None:
    source = project.root / "scale_ops" / "scale.py"
    text = source.read_text()
    assert written in text
    source.write_text(text.replace(written, instead))
    try:
        output = recorded(project, environment, expect=6)
    finally:
        source.write_text(text)
    assert f"`SignedScale` of scale_ops/scale.py {problem}" in output
