"""The two files: what is in them, and what cannot be made."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys

import pytest

from kbuild.dsl.launcher.resolved_kernel import ResolvedOp
from kbuild.system.errors import BuildError
from tests.support.launcher.launched import Kernel, extension, files_of, launched, ops_of
from tests.support.launcher.rich import TABLES, rich
from tests.support.launcher.small import KERNEL, SECTION, small


def test_the_same_each_time():
    first, second = (files_of("rich", rich(), TABLES, module=True) for _ in range(2))
    assert first.digest == second.digest
    assert [path for path, _ in first.items()] == ["aot/rich.bin", "aot/rich.cpp"]


def test_images_are_aligned_and_stored_once():
    """Both candidates with the same code: one for each of fast and plain."""
    op = small(kernel=dataclasses.replace(KERNEL, change=lambda unit: {"shared": 3}))
    same = [dataclasses.replace(c, code=b"12345") for c in op.launches[0].compiled]
    ones = ResolvedOp(op.spec, (dataclasses.replace(op.launches[0], compiled=tuple(same)),))
    assert files_of("k", [ones])["aot/k.bin"] == b"12345"
    same[1] = dataclasses.replace(same[1], code=b"6")
    two = ResolvedOp(op.spec, (dataclasses.replace(op.launches[0], compiled=tuple(same)),))
    assert files_of("k", [two])["aot/k.bin"] == b"12345" + bytes(11) + b"6"


TWO = """
[kernel.two]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.two.op]]
schema = "two(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
[[kernel.two.op.launch]]
function = "k"
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)"]
when = "N < 100"
[[kernel.two.op.launch]]
function = "k"
configs = [{ BLOCK = 128 }]
grid = ["cdiv(N, BLOCK)"]
when = "N >= 100"
"""


@pytest.mark.compile
@pytest.mark.torch
def test_a_launch_for_other_devices(driver, tmp_path):
    """A condition may leave a launch none of a build's archs, and so no image."""
    torch = pytest.importorskip("torch")
    (op,) = ops_of(TWO)
    both = launched(op, {"k": KERNEL}, ("sm_90a",))
    other = dataclasses.replace(both.launches[1], compiled=())
    files = files_of("two", [ResolvedOp(op, (both.launches[0], other))], module=True)
    torch.ops.load_library(str(extension(files, tmp_path, "_two_launches", "-O0")))
    driver.said()
    torch.ops._two_launches.two(torch.ones(8).half())
    assert [one.image.split()[1] for one in driver.launches()] == ["BLOCK=64"]
    with pytest.raises(
        RuntimeError, match="`two`: no image of `k` was compiled: it is for none of the archs of"
    ):
        torch.ops._two_launches.two(torch.ones(200).half())


@pytest.mark.compile
@pytest.mark.torch
def test_more_arguments_than_a_word_has_bits(driver, tmp_path):
    """What an image assumes of the last ones is looked at as well."""
    torch = pytest.importorskip("torch")
    names = [f"n{at}" for at in range(80)]
    section = SECTION.format(name="many").replace("Tensor x", "Tensor x, int a, int b, int c")
    args = ", ".join(f'{name} = "{at}"' for at, name in enumerate(names) if at not in (3, 70, 79))
    section += f'args = {{ {args}, n3 = "a", n70 = "b", n79 = "c" }}\n'
    (op,) = ops_of(section + 'divisible = ["n3", "n70"]\nones = ["n79"]\n')
    kernel = Kernel(("x", "out", "N", *names, "BLOCK!"))
    files = files_of("many", [launched(op, {"many": kernel}, ["sm_90a"])], module=True)
    torch.ops.load_library(str(extension(files, tmp_path, "_many_arguments", "-O0")))
    driver.said()
    for numbers in [(16, 32, 1), (16, 32, 2), (16, 8, 1), (8, 16, 1)]:
        torch.ops._many_arguments.many(torch.ones(64).half(), *numbers)
    records = driver.launches()
    assert ["fast" in one.image for one in records] == [True, False, False, False]
    assert [records[1].integer(3 + at) for at in (3, 69, 70, 79)] == [16, 69, 32, 2]


def test_too_many_arguments():
    section = SECTION.format(name="k").replace("Tensor x", "Tensor x, " + NUMBERS)
    (op,) = ops_of(section)
    kernel = Kernel(("x", "out", "N", *(f"n{at}" for at in range(126)), "BLOCK!"))
    with pytest.raises(BuildError, match="`k` has 129 arguments; a launch has at most 128"):
        files_of("k", [launched(op, {"k": kernel}, ["sm_90a"])])


NUMBERS = ", ".join(f"int n{at}" for at in range(126))


@pytest.mark.compile
@pytest.mark.torch
def test_two_kernels_in_one_extension(driver, tmp_path):
    """`_kbuild_preload` is one op for both, `_kbuild_choose` counts over both by name."""
    torch = pytest.importorskip("torch")
    second = files_of("b", [small("b")], module=True, control=True)
    first = files_of("a-1", [small("a")], control=True)
    path = extension(first.merge(second), tmp_path, "_two_tests", "-O0")
    found = importlib.util.spec_from_file_location("_two_tests", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    ops = torch.ops._two_tests
    driver.said()
    ops._kbuild_preload()
    assert len([line for line in driver.said() if line.startswith("load")]) == 8
    ops._kbuild_choose(1, 1)
    x = torch.ones(200).half()
    ops.a(x)
    ops.b(x)
    assert [one.image.split()[1] for one in driver.launches()] == ["BLOCK=64", "BLOCK=128"]


@pytest.mark.full
@pytest.mark.compile
@pytest.mark.torch
def test_without_a_driver(loaded):
    """Import and schemas need none; a call says what is missing."""
    program = (
        "import sys, torch; torch.ops.load_library(sys.argv[1]); x = torch.ones(4).half(); "
        "print(torch.ops._rich_tests.add.default._schema); torch.ops._rich_tests.add(x, x)"
    )
    command = (sys.executable, "-c", program, str(loaded.path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert "_rich_tests::add(Tensor x, Tensor y) -> Tensor" in done.stdout
    assert "cannot load the CUDA driver: libcuda.so.1: cannot open" in done.stderr


@pytest.mark.compile
@pytest.mark.torch
def test_what_is_linked(loaded):
    """Torch and C++ alone; nothing but the module's entry is offered to others."""
    command = ("readelf", "-dW", "--dyn-syms", str(loaded.path))
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: TID251
    needed = [line.rpartition("[")[2].rstrip("]") for line in text.splitlines() if "NEEDED" in line]
    assert not [name for name in needed if "cuda" in name or "c10" in name]
    assert "kbuild_aot_rich" not in text
    assert "PyInit__rich_tests" in text
