"""Triton's own compiler behind `kbuild aot`, and C compilers behind what it writes."""

from __future__ import annotations

import re
import shutil
import struct
import sys
from pathlib import Path

import pytest

from kbuild.__main__ import main
from kbuild.system.files import FileSet
from kbuild.system.processes import LocalRunner
from tests.support.exported_functions import compiled, run
from tests.support.stores import dsl_store, warm_cache

pytestmark = [pytest.mark.compile, pytest.mark.network]
EXAMPLE = Path(__file__).parents[2] / "examples" / "aot-c"
SOURCE = """\
import triton
import triton.language as tl

@triton.jit
def scale(
    x, alpha, beta, gamma, delta, n, one,
    FLAG: tl.constexpr, NAME: tl.constexpr, B: tl.constexpr,
):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at * one, mask=at < n) * alpha + beta + gamma + delta
    if FLAG and NAME == "twice":
        value *= 2
    tl.store(x + at * one, value, mask=at < n)
"""


@pytest.fixture
def project(tmp_path, tmp_path_factory, monkeypatch):
    store = dsl_store("triton-3.9.0", "triton", tmp_path_factory)
    cache = warm_cache(tmp_path / "cache", store, tmp_path_factory)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(cache))
    shutil.copytree(
        EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("generated", "main")
    )
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def aot(*arguments):
    assert main(["aot", "triton", *arguments]) == 0


def written(folder):
    return FileSet({path.name: path.read_bytes() for path in folder.glob("*.[ch]")})


@pytest.mark.parametrize(
    ("target", "capability", "driver"),
    [
        ("cuda:80:32", (8, 0), "libcuda.so.1"),
        ("cuda:90:32", (9, 0), "libcuda.so.1"),
        ("hip:gfx942:64", None, "libamdhip64.so.6"),
    ],
)
def test_an_add(project, tmp_path, target, capability, driver):
    signature = "*fp32:16, *fp32:16, *fp32:16, i32, 1024"
    grid = "cdiv(n, 1024),1,1"
    aot(
        "kernels.py", "-n", "add_kernel", "-s", signature, "-g", grid, "-t", target, "-o", "out/add"
    )
    (header,) = (project / "out").glob("*.h")
    name = re.search(r"^/\* (\w+):", header.read_text("utf-8"))[1]
    script = (
        f"fake.fake_capability(*{capability or (0, 0)})\n"
        "sizes(8, 8, 8, 4, 8, 8)\n"
        f"code = lib.{name}(None, c_uint64(16), c_uint64(32), c_uint64(48), c_int32(5000))\n"
        "say(code, report())"
    )
    code, seen = run(compiled(tmp_path, written(project / "out")), script, driver)
    assert code == 0
    assert seen["grid"] == [5, 1, 1]
    assert seen["block"] == (64 if capability is None else 32)
    assert seen["head"] == b"\x7fELF".hex() + seen["head"][8:]
    assert seen["values"][3] == struct.pack("<i", 5000).hex()


def test_every_kind_of_argument(project, tmp_path):
    """`:1` goes, floats keep their width: the worker compares with the assembly's parameters."""
    (project / "s.py").write_text(SOURCE)
    signature = '*fp32, fp32, fp64, fp16, bf16, i64, i32:1, True, "twice", 128'
    aot("s.py", "-n", "scale", "-s", signature, "-g", "n / 128", "-t", "cuda:80", "-o", "out/s")
    (header,) = (project / "out").glob("*.h")
    name = re.search(r"^/\* (\w+):", header.read_text("utf-8"))[1]
    script = (
        "sizes(8, 4, 8, 2, 2, 8)\n"
        f"call = lambda one: lib.{name}(None, c_uint64(16), c_float(2), c_double(3), c_float(0.5),"
        " c_float(-1), c_int64(256), c_int32(one))\n"
        "say(call(1), call(2), report()['values'])"
    )
    good, bad, values = run(compiled(tmp_path, written(project / "out")), script)
    assert (good, bad) == (0, 1)
    forms = [("<Q", 16), ("<f", 2), ("<d", 3), ("<e", 0.5), ("<H", 0xBF80), ("<q", 256)]
    assert values == [struct.pack(*form).hex() for form in forms]


@pytest.mark.quick
def test_the_example(project):
    """Builds here; it runs where there is a GPU."""
    done = LocalRunner().run(["make", f"KBUILD={sys.executable} -m kbuild"], cwd=project)
    assert done.ok, done.output
    ran = LocalRunner().run(["./main"], cwd=project)
    assert ran.returncode == 0 or "libcuda.so.1" in ran.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-n", "ad", "-s", "1", "-g", "1"), "has no kernel function `ad`"),
        (("-n", "add_kernel", "-s", "1", "-g", "1"), "the signature has 1 entries"),
        (
            ("-n", "add_kernel", "-s", "*fp32,*fp32,*fp32,i32,1024", "-g", "cdiv(m, 2)"),
            "`m` is not an integer argument",
        ),
        (("-n", "add_kernel", "-s", "*fp32,*fp32,*fp32,i32,1000", "-g", "1"), "power of 2"),
    ],
)
def test_what_does_not_compile(project, capsys, arguments, words):
    assert main(["aot", "triton", "kernels.py", "-t", "cuda:80", *arguments]) in (2, 5)
    assert words in capsys.readouterr().err
