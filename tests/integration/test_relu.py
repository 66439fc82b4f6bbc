"""`examples/relu` on the CPU: built once, loaded by the client, rebuilt only where needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbuild.checks.readers.elf import read_elf
from tests.support.command_project import CommandProject, run

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.usefixtures("need_torch")]

LOAD = """
import torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path({path!r}), backend="cpu")
x = torch.randn(1000)
assert torch.equal(kernel.relu(x), torch.relu(x))
print(kernel.__name__)
"""
HARD_CODED = """
import torch


@torch.library.custom_op("mine::op", mutates_args=())
def _op(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""


@pytest.fixture(scope="module")
def relu(example: Callable[[str], CommandProject]) -> CommandProject:
    bench = example("relu", kept=True)
    entry = bench.built("--backend", "cpu")
    assert entry["status"] == "built"
    return bench


def variant_of(bench: CommandProject) -> Path:
    (folder,) = [path for path in (bench.root / "build").iterdir() if path.is_dir()]
    return folder


@pytest.mark.quick
def test_the_directory_is_flat_and_complete(relu: CommandProject) -> None:
    folder = variant_of(relu)
    assert re.fullmatch(r"torch\d+-cxx11-cpu-\w+-linux", folder.name)
    metadata = json.loads((folder / "metadata.json").read_text())
    assert {path.name for path in folder.iterdir()} == {
        "__init__.py",
        "_ops.py",
        "layers",
        "metadata.json",
        f"{metadata['id']}.abi3.so",
    }
    assert metadata["provenance"]["kernel"]["dirty"] is False
    assert metadata["digest"]["algorithm"] == "sha256"
    assert re.fullmatch(r"_relu_cpu_[0-9a-f]{7}", metadata["id"])


@pytest.mark.quick
def test_nothing_but_the_entry_point_is_exported(relu: CommandProject) -> None:
    """Two kernels would share the templates of Torch's headers that both have compiled."""
    (library,) = variant_of(relu).glob("*.so")
    names = [symbol.name for symbol in read_elf(library).exported]
    assert names == [f"PyInit_{library.name.partition('.')[0]}"]


@pytest.mark.quick
def test_the_client_loads_it_by_path(relu: CommandProject) -> None:
    assert "_relu_cpu_" in relu.python(LOAD.format(path=str(relu.root / "build")))


@pytest.mark.quick
def test_nothing_starts_when_nothing_changed(relu: CommandProject, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("c++", "g++", "cc", "ld", "cmake", "ninja"):
        (trap / name).write_text("#!/bin/sh\nexit 99\n")
        (trap / name).chmod(0o755)
    log = relu.root / ".kbuild" / variant_of(relu).name / "log" / "build.log"
    before = log.stat().st_mtime_ns
    entry = relu.built("--backend", "cpu")
    assert (entry["status"], entry["steps"]) == ("up-to-date", 0)
    assert log.stat().st_mtime_ns == before


@contextmanager
def edited(file: Path) -> Iterator[None]:
    """A file of C++ with a comment more; its times are as before afterwards."""
    status, text = file.stat(), file.read_text()
    file.write_text(text + "// edited\n")
    try:
        yield
    finally:
        file.write_text(text)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_an_edit_that_makes_the_tree_dirty_does_not_recompile_the_kernels(
    relu: CommandProject,
) -> None:
    with edited(relu.root / "torch-ext" / "torch_binding.cpp"):
        entry = relu.built("--backend", "cpu")
        metadata = json.loads((variant_of(relu) / "metadata.json").read_text())
        log = relu.root / ".kbuild" / variant_of(relu).name / "log" / "build.log"
        assert metadata["id"].endswith("_dirty")
        assert metadata["provenance"]["kernel"]["dirty"] is True
        assert entry["steps"] >= 2
        assert "relu_cpu.cpp" not in log.read_text()
    relu.built("--backend", "cpu")


def test_a_header_is_a_dependency(relu: CommandProject) -> None:
    with edited(relu.root / "torch-ext" / "torch_binding.h"):
        assert relu.built("--backend", "cpu")["status"] == "built"
    assert relu.built("--backend", "cpu")["status"] == "built"


@pytest.mark.quick
def test_a_compile_error_is_shown_and_the_good_build_stays(relu: CommandProject) -> None:
    source = relu.root / "relu_cpu" / "relu_cpu.cpp"
    text = source.read_text()
    good = sorted(path.name for path in variant_of(relu).iterdir())
    source.write_text(text + "\nint broken = undeclared_name;\n")
    try:
        done = relu.kbuild("build", "--backend", "cpu", expect=5)
    finally:
        source.write_text(text)
    assert "relu_cpu/relu_cpu.cpp did not compile" in done.stderr
    assert "undeclared_name" in done.stderr
    command = re.search(r"command: (\S+build-failed\.sh)", done.stderr)
    assert command is not None
    assert "relu_cpu.cpp" in Path(command[1]).read_text()
    log = re.search(r"log: (\S+build\.log)", done.stderr)
    assert log is not None
    assert Path(log[1]).is_file()
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in variant_of(relu).iterdir()) == good
    assert relu.built("--backend", "cpu")["status"] == "up-to-date"


def test_a_broken_promise_keeps_the_good_build(relu: CommandProject) -> None:
    source = relu.root / "torch-ext" / "relu" / "__init__.py"
    text = source.read_text()
    source.write_text(text + HARD_CODED)
    try:
        done = relu.kbuild("build", "--backend", "cpu", expect=6)
        assert "mine::op" in done.stderr
        assert "mine::op" not in (variant_of(relu) / "__init__.py").read_text()
    finally:
        source.write_text(text)
        relu.built("--backend", "cpu")


@pytest.mark.quick
def test_its_own_tests_pass_against_the_built_variant(relu: CommandProject) -> None:
    done = relu.kbuild("test", "--", "-q", "-k", "float32 and not compile")
    assert "passed" in done.stdout + done.stderr


@pytest.mark.quick
def test_a_variant_of_another_machine_is_refused_with_the_reason(relu: CommandProject) -> None:
    done = relu.kbuild("build", "--variant", "torch213-metal-aarch64-darwin", expect=4)
    assert "needs aarch64-darwin" in done.stderr


def test_two_builds_at_once_do_not_mix(relu: CommandProject) -> None:
    from concurrent.futures import ThreadPoolExecutor

    relu.built("--backend", "cpu")
    with edited(relu.root / "relu_cpu" / "relu_cpu.cpp"), ThreadPoolExecutor(2) as pool:
        entries = list(pool.map(lambda _: relu.built("--backend", "cpu"), range(2)))
    assert sorted(entry["status"] for entry in entries) == ["built", "up-to-date"]
    names = {path.name for path in (relu.root / "build").iterdir()}
    assert names == {variant_of(relu).name, "CARD.md"}


def test_two_versions_work_in_one_process(relu: CommandProject, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(relu.root / "build", old)
    before = json.loads((variant_of(relu) / "metadata.json").read_text())["id"]
    binding = relu.root / "torch-ext" / "torch_binding.cpp"
    binding.write_text(binding.read_text() + "// the next version\n")
    relu.git("commit", "-qam", "next")
    relu.built("--backend", "cpu")
    assert json.loads((variant_of(relu) / "metadata.json").read_text())["id"] != before
    script = (
        "import sys, torch; from pathlib import Path; from kernels import get_local_kernel\n"
        "old, new = (get_local_kernel(Path(path), backend='cpu') for path in sys.argv[1:])\n"
        "assert old.relu is not new.relu\n"
        "x = torch.tensor([-1.0, 2.0])\n"
        "assert [k.relu(x).tolist() for k in (old, new)] == [[0.0, 2.0]] * 2\n"
    )
    folders = (str(old), str(relu.root / "build"))
    done = run((sys.executable, "-c", script, *folders), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
