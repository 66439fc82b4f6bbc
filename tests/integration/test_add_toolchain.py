"""The toolchain of `docs/contributing/add-a-toolchain.md`, from a distribution of its own."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kbuild.system.errors import ToolchainError, UsageError
from tests.support.guide import files_of, install
from tests.support.tiny_project import write_tiny

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]


def test_a_site_builds_with_its_own_compiler(tmp_path: Path) -> None:
    bench = write_tiny(tmp_path, "cpu")
    env = install(tmp_path / "site", files_of("add-a-toolchain.md"))
    done = bench.kbuild("build", "--toolchain", "site", expect=ToolchainError.code, env=env)
    assert "needs `site-c++`, which `module load compilers` puts on PATH" in done.stderr

    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "site-c++").symlink_to(str(shutil.which("g++")))
    env["PATH"] = os.pathsep.join((str(programs), os.environ["PATH"]))
    done = bench.kbuild("build", "--toolchain", "site", "--json", env=env)
    [built] = [entry for entry in json.loads(done.stdout)["variants"] if entry["path"]]
    metadata = json.loads((bench.root / built["path"] / "metadata.json").read_text())
    used = metadata["provenance"]["kernel-builder"]["toolchain"]
    assert used["source"] == "site"
    assert used["versions"]["c++"]

    done = bench.kbuild("build", "--toolchain", "sight", expect=UsageError.code, env=env)
    assert "debian-nvcc, site" in done.stderr
