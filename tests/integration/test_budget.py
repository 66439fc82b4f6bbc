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


def cache_of(bench: CommandProject) -> dict[str, str]:
    return {"KBUILD_CACHE_DIR": str(bench.cache), "NO_COLOR": "1"}


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
