"""Examples for TVM-FFI from wheels: what is in them, and which runtimes load them.

Fetches 7 MB, and 82 MB of TileLang.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks.readers.elf import read_elf
from tests.support.command_project import CommandProject, run
from tests.support.tvm_ffi_interpreter import fetch, interpreter

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
    pytest.mark.skipif(
        (platform.machine(), platform.system()) != ("x86_64", "Linux"),
        reason="toolchains from wheels are for x86_64 Linux",
    ),
]
VARIANT = "tvm-ffi01-cpu-x86_64-linux"
OLDER = "0.1.9"
COMPUTES = """
import sys
from pathlib import Path
import numpy as np, tvm_ffi
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")
x = np.array([-1, 2], np.float32)
assert kernel.relu(x).tolist() == [0, 2]
import torch
y = torch.tensor([-3.0, 4.0])
kernel._ops.ops.relu(y, y)
assert y.tolist() == [0, 4]
print(tvm_ffi.__version__)
"""
ALONE = """
import importlib.util, sys
assert not any(map(importlib.util.find_spec, ("torch", "numpy", "jax", "kernels")))
spec = importlib.util.spec_from_file_location("alone", {init!r})
module = importlib.util.module_from_spec(spec)
sys.modules["alone"] = module
spec.loader.exec_module(module)
for call, words in (
    (lambda: module._ops.torch_register_op("f() -> ()"), "need Torch: pip install torch"),
    (lambda: module._jax._register(), "need: pip install jax jax-tvm-ffi"),
    (lambda: module.relu(1.0), "pass `out`"),
):
    try:
        call()
    except (ImportError, TypeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("no framework is needed")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def relu(example: Callable[[str], CommandProject], python: Path) -> CommandProject:
    bench = example("relu-tvm-ffi", kept=True)
    entry = bench.build("--toolchain", "wheels", "--variant", VARIANT)[VARIANT]
    assert entry["status"] == "built"
    return bench


@pytest.mark.quick
def test_it_needs_the_runtime_and_offers_its_functions(relu: CommandProject) -> None:
    (library,) = (relu.root / "build" / VARIANT).glob("*.so")
    elf = read_elf(library)
    system = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6"}
    assert set(elf.needed) - system == {"libtvm_ffi.so"}
    names = ("relu", "relu_backward")
    functions = {f"__tvm_ffi_{part}{name}" for name in names for part in ("", "_metadata_")}
    assert {symbol.name for symbol in elf.exported} == functions


@pytest.mark.quick
def test_its_own_tests_pass(relu: CommandProject, python: Path) -> None:
    done = relu.kbuild("test", "--python", str(python), "--", "-q")
    assert "passed" in done.stdout + done.stderr


def test_an_older_runtime_loads_it(relu: CommandProject, python: Path, tmp_path: Path) -> None:
    older = fetch(tmp_path / "older", "--no-deps", f"apache-tvm-ffi=={OLDER}")
    code = COMPUTES.format(path=str(relu.root / "build"))
    done = run((str(python), "-c", code), cwd=tmp_path, env={"PYTHONPATH": str(older)})
    assert done.stdout.strip().endswith(OLDER), done.stderr


def test_it_needs_no_other_framework(relu: CommandProject, tmp_path: Path) -> None:
    alone = fetch(tmp_path / "alone", "apache-tvm-ffi>=0.1,<0.2")
    code = ALONE.format(init=str(relu.root / "build" / VARIANT / "__init__.py"))
    argv = (sys.executable, "-S", "-c", code)
    done = run(argv, cwd=tmp_path, env={"PYTHONPATH": str(alone)})
    assert "no framework is needed" in done.stdout, done.stderr


def test_an_installed_tvm_ffi_is_built_against(
    example: Callable[[str], CommandProject], python: Path
) -> None:
    bench = example("relu-tvm-ffi", kept=True)
    options = ("--toolchain", "host", "--python", str(python))
    entry = bench.build(*options, "--variant", VARIANT)[VARIANT]
    assert entry["status"] == "built"
    metadata = json.loads((bench.root / "build" / VARIANT / "metadata.json").read_text())
    used = metadata["provenance"]["kernel-builder"]["toolchain"]
    assert used["source"] == "host"
    assert used["versions"]["apache-tvm-ffi"].startswith("0.1.")


@pytest.fixture(scope="module")
def elementwise(example: Callable[[str], CommandProject]) -> CommandProject:
    bench = example("elementwise-tvm-ffi", kept=True)
    entry = bench.build("--toolchain", "wheels", "--variant", VARIANT)[VARIANT]
    assert entry["status"] == "built"
    return bench


def test_a_kernel_in_a_dsl_is_a_function(elementwise: CommandProject, python: Path) -> None:
    (library,) = (elementwise.root / "build" / VARIANT).glob("*.so")
    names = {symbol.name for symbol in read_elf(library).exported}
    assert names == {*("__tvm_ffi_axpy", "__tvm_ffi__metadata_axpy"), "__tvm_ffi__kbuild_preload"}
    done = elementwise.kbuild("check-builds", "--python", str(python), "--strict", "--json")
    (target,) = json.loads(done.stdout)["targets"]
    (output,) = target["outputs"]
    assert output["checks"]["load"] == output["checks"]["tvm-ffi-abi"] == "ok", done.stdout
    assert [found for found in output["findings"] if found["severity"] != "info"] == []
    done = elementwise.kbuild("test", "--python", str(python), "--", "-q")
    assert "passed" in done.stdout + done.stderr


def test_candidates_of_functions_are_tuned(
    elementwise: CommandProject, python: Path, tmp_path: Path
) -> None:
    bench = CommandProject(tmp_path / "project", elementwise.cache)
    shutil.copytree(elementwise.root, bench.root, ignore=shutil.ignore_patterns("build", ".*"))
    section = bench.root / "build.toml"
    text = section.read_text().replace("{ block = 1024 }", "{ block = 1024 }, { block = 64 }")
    section.write_text(text.replace('{ y = "x"', '{ x = ["n"], y = "x"', 1))
    shapes = tmp_path / "shapes.toml"
    shapes.write_text("[axpy]\ncases = [{ n = 4096 }]\n")
    bench.kbuild("build", "--keep-all", "--toolchain", "wheels", "--variant", VARIANT)
    built = str(bench.root / "build" / VARIANT)
    options = ("--python", str(python), "--shapes", str(shapes))
    bench.kbuild("tune", "--device", "cpu", "--variant", built, *options)
    (row,) = json.loads((bench.root / "tuned" / "cpu.json").read_text())["rows"]
    assert row["op"] == "axpy"
    assert row["constants"]["block"] in {64, 1024}
