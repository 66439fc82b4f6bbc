"""Real compilers under the launcher: objects from the cache, time budgets, the report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.build import launcher
from kbuild.build.unit_log import read_log
from kbuild.system.unit_settings import LauncherSettings
from tests.support.command_project import CommandProject

pytestmark = pytest.mark.compile
STABLE = "relu-stable-abi"
LOADED_BY_NOTHING_TO_DO = """
import contextlib, io, sys
from kbuild.__main__ import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["build", {root!r}, "--backend", "cpu"])
print(*sorted(name for name in sys.modules if name.startswith("kbuild.build")))
"""
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


def launch(folder: Path, language: str, *command: str) -> str:
    settings = LauncherSettings(run=str(folder / "run"), cache=str(folder / "cache"), memory=8000)
    (folder / "run").mkdir(exist_ok=True)
    done = subprocess.run(  # noqa: TID251
        (sys.executable, "-I", "-S", launcher.__file__, language, *command),
        env={**os.environ, **settings.to_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def cache_of(bench: CommandProject) -> dict[str, str]:
    return {"KBUILD_CACHE_DIR": str(bench.cache), "NO_COLOR": "1"}


def outcomes(folder: Path) -> list[str]:
    return [unit.cache for unit in read_log(folder / "run" / "units.jsonl").units]


@needs_nvcc
def test_nvcc_with_several_architectures(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("__global__ void k(float* x) { x[0] = 1; }\n")
    time.sleep(0.01)
    archs = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]
    for name, flags in (("a", archs), ("b", archs), ("c", archs[:1])):
        launch(
            tmp_path, "CUDA", "nvcc", *flags, f"-Xcompiler=-ffile-prefix-map={tmp_path}=/kernel",
            "-MD", "-MT", f"{name}.o", "-MF", f"{tmp_path}/{name}.d", "-x", "cu",
            "-c", str(source), "-o", f"{tmp_path}/{name}.o",
        )  # fmt: skip
    assert outcomes(tmp_path) == ["miss", "hit", "miss"]
    assert (tmp_path / "a.o").read_bytes() == (tmp_path / "b.o").read_bytes()


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_new_workspace_takes_its_objects_from_the_cache(
    example: Callable[[str], CommandProject],
) -> None:
    bench = example(STABLE)
    first = bench.built("--backend", "cpu")
    library = next(Path(first["path"]).glob("*.so")).read_bytes()
    assert (first["objects"], first["from_cache"]) == (2, 0)
    shutil.rmtree(bench.root / ".kbuild")
    shutil.rmtree(bench.root / "build")
    again = bench.kbuild("build", "--backend", "cpu", "--report")
    assert "2 of 2 objects from cache" in again.stderr
    assert re.search(r"relu_cpu/relu_cpu.cpp .* hit", again.stdout)
    assert next(Path(first["path"]).glob("*.so")).read_bytes() == library
    loaded = bench.python(LOADED_BY_NOTHING_TO_DO.format(root=str(bench.root)), cache_of(bench))
    assert loaded.split() == ["kbuild.build", "kbuild.build.state"]
    shutil.rmtree(bench.root / ".kbuild")
    done = bench.kbuild("build", "--backend", "cpu", "--json", env={"KBUILD_CACHE": "off"})
    (entry,) = [one for one in json.loads(done.stdout)["variants"] if one["path"]]
    assert (entry["objects"], entry["from_cache"]) == (2, 0)
    assert next(Path(entry["path"]).glob("*.so")).read_bytes() == library


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_build_that_ran_out_of_time_is_continued(
    example: Callable[[str], CommandProject],
) -> None:
    bench = example(STABLE)
    off = {"KBUILD_CACHE": "off"}
    done = bench.kbuild(
        "build", "--backend", "cpu", "-j1", "--time-budget", "1s", expect=9, env=off
    )
    assert "incomplete" in done.stderr
    assert "run again to continue" in done.stderr
    assert not (bench.root / "build").exists()
    entry = bench.built("--backend", "cpu")
    assert entry["status"] == "built"


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_nothing_is_pruned_while_a_build_runs(example: Callable[[str], CommandProject]) -> None:
    bench = example(STABLE)
    process = subprocess.Popen(  # noqa: TID251
        (sys.executable, "-m", "kbuild", "build", "--backend", "cpu", "-j1"),
        cwd=bench.root,
        env={**os.environ, **cache_of(bench), "KBUILD_CACHE": "off"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(bench.root.glob(".kbuild/*/tree/build.ninja")) and process.poll() is None:
        time.sleep(0.05)
    done = bench.kbuild("toolchain", "prune", "--all", expect=4)
    assert process.poll() is None
    assert "nothing was removed" in done.stderr
    bench.kbuild("toolchain", "prune", "--all", "--dry-run")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    bench.kbuild("toolchain", "prune", "--all")
