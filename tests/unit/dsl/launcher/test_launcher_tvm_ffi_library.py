"""The library of launchers for TVM-FFI: what it offers, says and needs."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from kbuild.dsl.launcher.files import launcher_files
from tests.support.launcher.functions import Functions, library, without_fallback
from tests.support.launcher.launched import FAKES, compiler, files_of, ops_of
from tests.support.launcher.linked_objects import linked_op
from tests.support.launcher.rich import rich
from tests.support.launcher.small import small

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="no TVM-FFI"),
]
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
FakeTensorMode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode


@pytest.fixture
def host() -> str:
    return "tvm-ffi"


def half(*shape):
    return torch.ones(shape, dtype=torch.float16)


def test_functions_describe_themselves(functions, ops):
    signatures = {}
    for name in ("add", "norm", "split", "scale_"):
        text = functions.module.get_function_metadata(name)["type_schema"]
        signatures[name] = json.loads(text)["named_args"]
    kinds = {n: [one["type"] for one in s["params"]] for n, s in signatures.items()}
    assert kinds["norm"] == ["DLTensor*", "DLTensor*", "Optional", "float"]
    assert kinds["scale_"] == ["DLTensor*", "int", "bool", "float"]
    returned = {name: one["return"][0]["type"] for name, one in signatures.items()}
    assert returned == {
        "add": "ffi.Tensor",
        "norm": "ffi.Tensor",
        "split": "ffi.Array",
        "scale_": "None",
    }


def said(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: TID251
    return done.stdout


def test_what_is_exported_and_needed(functions):
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", said("readelf", "-dW", functions.path)))
    system = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6"}
    assert needed - system == {"libtvm_ffi.so"}
    symbols = said("nm", "-D", "--defined-only", functions.path).splitlines()
    offered = {line.split()[-1] for line in symbols}
    names = [*functions.schemas, *(f"_metadata_{name}" for name in functions.schemas)]
    assert offered == {f"__tvm_ffi_{n}" for n in (*names, "_kbuild_preload", "_kbuild_choose")}
    source = launcher_files("rich", without_fallback(rich()), module=True, framework="tvm-ffi")
    assert not re.search("(?i)aoti_|torch/csrc", source["aot/rich.cpp"].decode())


def test_two_kernels_in_one_library(driver, tmp_path):
    """`_kbuild_preload` is one function for both, `_kbuild_choose` counts over both by name."""
    files = files_of("b", [small("b")], control=True, framework="tvm-ffi")
    files = files.merge(files_of("a-1", [small("a")], control=True, framework="tvm-ffi"))
    functions = Functions(library(files, tmp_path, "two"), [])
    driver.said()
    functions._kbuild_preload()
    assert len([line for line in driver.said() if line.startswith("load")]) == 8
    functions._kbuild_preload(1)
    functions._kbuild_choose(1, 1)
    x = half(200)
    functions.a(x)
    functions.b(x)
    assert [one.image.split()[1] for one in driver.launches()] == ["BLOCK=64", "BLOCK=128"]


def test_nothing_can_be_fallen_back_on():
    with pytest.raises(ValueError, match="`late`: runs the DSL on tensors of Torch"):
        launcher_files("rich", rich(), module=False, framework="tvm-ffi")


def test_for_devices(tmp_path):
    """As it is compiled for a GPU and for no driver at all: without what tests need."""
    files = files_of("k", [small()], framework="tvm-ffi")
    library(files, tmp_path / "cuda", "k", tested=False)


FAST = 2000
"""What the objects add that are for aligned calls."""
ON_THE_CPU = """
[kernel.k]
backend = "cpu"
language = "tilelang"
toolchain = "tilelang==0.1.15"
src = ["kernel.py"]

[[kernel.k.op]]
schema = "twice(Tensor x, float factor) -> Tensor out"
shapes = { x = ["N"], part = ["N"], out = ["N"] }
dtypes = ["float32"]
temporaries = ["part"]

[[kernel.k.op.launch]]
function = "scale_c"
args = { out = "part", n = "N", big = "0", wide = 1.0, flag = "N > 5" }

[[kernel.k.op.launch]]
function = "scale_c"
args = { x = "part", n = "N", big = "0", wide = 0.5, flag = "0" }
"""


def test_on_the_cpu_without_a_driver(tmp_path):
    """Two launches with a tensor between them, for which nothing else gives memory."""
    (op,) = ops_of(ON_THE_CPU)
    made = linked_op(op, tmp_path, ["cpu"])
    files = files_of("k", [made], framework="tvm-ffi")
    functions = Functions(library(files, tmp_path, "cpu", tested=False), [op])
    for count in (4, 8):
        x, out = numpy.arange(count, dtype=numpy.float32), numpy.zeros(count, numpy.float32)
        assert functions.module["twice"](x, 2.0, out) is None
        numpy.testing.assert_array_equal(
            out, FAST + 0.5 + (FAST + 1 + 100 * (count > 5) + x * 2) * 2
        )
    x = torch.arange(4.0)
    torch.testing.assert_close(functions.twice(x, 1.0), x + 2 * FAST + 1.5)
    with FakeTensorMode():
        fake = torch.ones(4)
    with pytest.raises(RuntimeError, match="`twice`: `x` has no data: is it one of Torch's fake"):
        functions.twice(fake, 1.0)


def test_values_before_the_launches_on_the_cpu(tmp_path):
    """A result that no launch writes to, zeroed and with another value."""
    for value in ("0", "-2.5"):
        more = f'temporaries = ["part"]\nfill = {{ rest = {value} }}'
        text = ON_THE_CPU.replace("-> Tensor out", "-> (Tensor out, Tensor rest)")
        text = text.replace('out = ["N"] }', 'out = ["N"], rest = ["N", 3] }')
        (op,) = ops_of(text.replace('temporaries = ["part"]', more))
        made = linked_op(op, tmp_path, ["cpu"])
        files = files_of("k", [made], framework="tvm-ffi")
        functions = Functions(library(files, tmp_path, f"cpu{value}", tested=False), [op])
        _, rest = functions.twice(torch.arange(4.0), 1.0)
        torch.testing.assert_close(rest, torch.full((4, 3), float(value)))


HIP_PROGRAM = """
import ctypes, sys, torch, tvm_ffi
hip = ctypes.CDLL(sys.argv[1])
hip.fake_text.restype = ctypes.c_char_p
module = tvm_ffi.load_module(sys.argv[2])
x = torch.ones(300).half()
print(module.k(x).shape)
print(hip.fake_text().decode(), end="")
"""


def test_hip(tmp_path):
    """In a process of its own, as for Torch."""
    files = files_of("k", [small(targets=["gfx942", "gfx90a"])], framework="tvm-ffi")
    path = library(files, tmp_path, "hip")
    compiler(FAKES / "hip_runtime.c", tmp_path / "libtorch_hip.so")
    command = (sys.executable, "-c", HIP_PROGRAM, str(tmp_path / "libtorch_hip.so"), str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "torch.Size([300])"
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["load", "launch"]
