"""Types of XPU sources with the real headers. Fetches 1.2 MB of SYCL's and 13 MB of Torch's."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbuild.errors import ToolchainError
from kbuild.runtime.processes import LocalRunner
from kbuild.toolchains.wheels.package_index import PackageIndex
from kbuild.toolchains.wheels.settings import pip_settings
from tests.support.command_project import Bench

pytestmark = [pytest.mark.network, pytest.mark.compile]


@pytest.fixture(scope="module", autouse=True)
def need_index() -> None:
    if not shutil.which("c++"):
        pytest.skip("needs a C++ compiler: apt install g++")
    try:
        with PackageIndex(pip_settings(LocalRunner())) as index:
            found = index.files("intel-sycl-rt")
    except ToolchainError as error:
        pytest.skip(f"the package index is out of reach: {error.message}")
    if not found:
        pytest.skip("the package index has no intel-sycl-rt")


@pytest.fixture(scope="module")
def relu(example: Callable[[str], Bench]) -> Bench:
    return example("relu", kept=True)


@pytest.fixture(scope="module")
def fresh(relu: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """What `kbuild init` writes, with the headers that `relu` has fetched."""
    folder = tmp_path_factory.mktemp("init")
    bench = Bench(folder, relu.cache)
    bench.kbuild("init", "my-kernel", "--backends", "all", "--no-git")
    return Bench(folder / "my-kernel", relu.cache)


def check(bench: Bench, expect: int = 0) -> dict[str, Any]:
    """Verdicts by backend."""
    answer = json.loads(bench.kbuild("check", "--json", expect=expect).stdout)
    (target,) = answer["targets"]
    return {
        "xpu" if "-xpu" in verdict["variant"] else "metal": verdict
        for verdict in target["sources"]["variants"]
    }


def spoil(path: Path, old: str, new: str) -> int:
    """Write an error into a file; its line."""
    lines = path.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if old in line)
    lines[at] = lines[at].replace(old, new)
    path.write_text("".join(lines))
    return at + 1


def lines_of(verdict: dict[str, Any]) -> set[str]:
    return {found["where"] for found in verdict["findings"]}


@pytest.mark.parametrize("name", ["relu", "fresh"])
def test_sound_sources_pass(name: str, request: pytest.FixtureRequest) -> None:
    verdicts = check(request.getfixturevalue(name))
    for verdict in verdicts.values():
        assert verdict["state"] == "ok"
        assert verdict["findings"] == []
    assert verdicts["xpu"]["units"] == 2
    assert "Torch 2.15" in verdicts["xpu"]["proved"]
    assert "3 files" in verdicts["metal"]["proved"]


@pytest.mark.parametrize("name", ["relu", "fresh"])
def test_errors_are_found_with_their_lines(name: str, request: pytest.FixtureRequest) -> None:
    bench = request.getfixturevalue(name)
    (kernel,) = bench.root.glob("*_xpu/*.cpp")
    (shader,) = bench.root.glob("*_metal/*.metal")
    wrong = spoil(kernel, "sycl::range<1>", "sycl::rang<1>")
    with kernel.open("a") as file:
        file.write(f"// {uuid.uuid4()}\n")  # earlier runs' verdicts are kept
    lost = spoil(shader, "#include <metal_stdlib>", '#include "metal_standard.h"')
    verdicts = check(bench, expect=6)
    assert f"{kernel.relative_to(bench.root)}:{wrong}" in lines_of(verdicts["xpu"])
    assert lines_of(verdicts["metal"]) == {f"{shader.relative_to(bench.root)}:{lost}"}
    # The binding was not touched; the second time, nothing is asked again.
    assert verdicts["xpu"]["remembered"] == 1
    assert check(bench, expect=6)["xpu"]["remembered"] == 2
