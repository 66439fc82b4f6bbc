"""Real compilers under the launcher: objects from the cache, time budgets, the report."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject
from tests.support.tiny_project import write_tiny

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
    return {"KBUILD_CACHE_DIR": str(bench.cache), "KBUILD_TOOLCHAIN": "host", "NO_COLOR": "1"}


@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_new_workspace_takes_its_objects_from_the_cache(tmp_path: Path) -> None:
    bench = write_tiny(tmp_path, "cpu")
    # Without __DATE__, which the cache refuses.
    (bench.root / "cpu/quiet.cpp").write_text("int unused() { return 1; }\n")
    first = bench.built("--backend", "cpu")
    library = next(Path(first["path"]).glob("*.so")).read_bytes()
    assert (first["objects"], first["from_cache"]) == (2, 0)
    shutil.rmtree(bench.root / ".kbuild")
    shutil.rmtree(bench.root / "build")
    again = bench.kbuild("build", "--backend", "cpu", "--report")
    assert "2 of 2 objects from cache" in again.stderr
    assert re.search(r"cpu/quiet.cpp .* hit", again.stdout)
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
