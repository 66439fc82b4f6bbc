"""Objects for GPUs as they are shipped, called with a CUDA runtime that writes down what they do.

TileLang writes a library of its own: one initialisation for one device, every launch free to begin
before the one before it has ended, and the same names in every object.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tilelang_bench import Shop, shop

from kbuild.errors import BuildError
from kbuild.languages.compiled import Compiled

pytestmark = pytest.mark.network
FAKE = Path(__file__).resolve().parents[1] / "fakes" / "cudart.c"
SOURCE = """\
import tilelang
import tilelang.language as T


@tilelang.jit
def product(a, b, rows: int = 128, stages: int = 2, clusters: int = 1):
    M, N, K = T.dynamic("M, N, K")
    a: T.Tensor[[M, K], T.float16]
    b: T.Tensor[[K, N], T.float16]
    out = T.empty([M, N], T.float16)
    with T.Kernel(
        T.ceildiv(N, 128), T.ceildiv(M, rows), threads=128, cluster_dims=clusters
    ) as (bx, by):
        a_tile = T.alloc_shared((rows, 64), T.float16)
        b_tile = T.alloc_shared((64, 128), T.float16)
        total = T.alloc_fragment((rows, 128), T.float32)
        T.clear(total)
        for k in T.Pipelined(T.ceildiv(K, 64), num_stages=stages):
            T.copy(a[by * rows, k * 64], a_tile)
            T.copy(b[k * 64, bx * 128], b_tile)
            T.gemm(a_tile, b_tile, total)
        T.copy(total, out[by * rows, bx * 128])
    return out


@tilelang.jit
def waits(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, 128), threads=128) as block:
        T.pdl_sync()
        for i in T.Parallel(128):
            if block * 128 + i < n:
                out[block * 128 + i] = x[block * 128 + i] + 1
    with T.Kernel(T.ceildiv(n, 128), threads=128) as block:
        for i in T.Parallel(128):
            if block * 128 + i < n:
                out[block * 128 + i] = out[block * 128 + i] * 2
    return out


@tilelang.jit
def kept(x):
    n = T.const("wide")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, 128), threads=128) as block:
        T.annotate_l2_hit_ratio({x: 0.5})
        for i in T.Parallel(128):
            out[block * 128 + i] = x[block * 128 + i] + 1
    return out
"""
PRODUCT = """
schema = "product(Tensor a, Tensor b) -> Tensor out"
shapes = { a = ["M", "K"], b = ["K", "N"], out = ["M", "N"] }
dtypes = ["float16"]
contiguous = true
configs = [{ rows = 64, clusters = 1 }, { rows = 128, clusters = 2 }]
"""
FLAT = """
schema = "f(Tensor x) -> Tensor out"
function = "{name}"
shapes = {{ x = ["n"], out = "x" }}
dtypes = ["float32"]
contiguous = true
"""


class Linked:
    """Objects in one library, and what their calls do."""

    def __init__(self, objects: Sequence[Compiled], folder: Path) -> None:
        self.objects = objects
        files = []
        for one in objects:
            files.append(folder / f"{one.image.entry}.o")
            files[-1].write_bytes(one.code)
        symbols = [one.image.entry for one in objects]
        table = folder / "table.c"
        named = [*symbols, *(f"{symbol}_error" for symbol in symbols)]
        table.write_text(
            "".join(f"void {name}(void);\n" for name in named)
            + f"void* table[] = {{{', '.join(f'(void*){name}' for name in named)}}};\n"
        )
        library = folder / "linked.so"
        command = ("gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(FAKE), str(table))
        subprocess.run((*command, *map(str, files), "-lstdc++"), check=True)  # noqa: TID251
        self.library = ctypes.CDLL(str(library))
        self.library.fake_written.restype = ctypes.c_char_p
        self._table = (ctypes.c_void_p * len(named)).in_dll(self.library, "table")

    def call(self, index: int = 0, *, device: int = 0, fails: int = 0, size: int = 256) -> int:
        """The outcome of a call on a device."""
        self.library.fake_begin(device, fails)
        parameters = self.objects[index].image.parameters
        values = [
            ctypes.c_void_p(1 << 12) if one.kind == "pointer" else ctypes.c_int64(size)
            for one in parameters
        ]
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self._table[index])
        return int(function(*values, ctypes.c_void_p(0x1234)))

    def said(self, what: str) -> list[dict[str, str]]:
        """The lines of one kind that the last call wrote."""
        lines = self.library.fake_written().decode().splitlines()
        wanted = (line for line in lines if line.startswith(f"{what} "))
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in wanted]

    def error(self, index: int = 0) -> str:
        """What the object says of its last failure."""
        at = len(self.objects) + index
        said = ctypes.CFUNCTYPE(ctypes.c_char_p)(self._table[at])()
        return str(said.decode())


@pytest.fixture(scope="module")
def tilelang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop(tmp_path_factory.mktemp("tilelang"), SOURCE) as found:
        yield found


@pytest.fixture(scope="module")
def product(tilelang, tmp_path_factory: pytest.TempPathFactory) -> Linked:
    """Both candidates for Hopper, and one for another chip: three objects of one function."""
    objects = tilelang.compiled(PRODUCT, "sm_90a")
    other = tilelang.compiled(PRODUCT.replace(", { rows = 128, clusters = 2 }", ""), "sm_80")
    return Linked((*objects, *other), tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def waits(tilelang, tmp_path_factory: pytest.TempPathFactory) -> Linked:
    objects = tilelang.compiled(FLAT.format(name="waits"), "sm_90a")
    return Linked(objects, tmp_path_factory.mktemp("waits"))


def test_the_kernels_of_one_function_stay_apart(product):
    kernels = set()
    for index in range(3):
        assert product.call(index) == 0, product.error(index)
        kernels |= {one["kernel"] for one in product.said("launch")}
    assert len(kernels) == 3


def test_the_stream_is_the_callers(product):
    product.call()
    assert [one["stream"] for one in product.said("launch")] == ["0x1234"]


def test_no_launch_begins_early_by_itself(product):
    for index in range(3):
        product.call(index)
        assert [one["pdl"] for one in product.said("launch")] == ["0"]


def test_clusters(product):
    found = []
    for index in range(2):
        product.call(index)
        found += [one["cluster"] for one in product.said("launch")]
    assert found == ["1", "2"]


def test_only_the_kernel_that_waits_may_begin_early(waits):
    assert waits.call() == 0
    assert [one["pdl"] for one in waits.said("launch")] == ["1", "0"]


def test_each_device_is_prepared_once_for_each_object(product):
    seen = []
    for device in (3, 4, 3, 4):
        for index in (0, 2):
            assert product.call(index, device=device) == 0, product.error(index)
            seen += [(index, device) for one in product.said("prepare") if one["attribute"] == "8"]
            assert {one["device"] for one in product.said("prepare")} <= {str(device)}
    assert seen == [(0, 3), (2, 3), (0, 4), (2, 4)]


def test_an_empty_result_is_no_launch(product):
    assert product.call(device=1, size=0) == 0
    assert product.said("launch") == []


@pytest.mark.parametrize(("fails", "device"), [(1, 0), (2, 17)])
def test_what_fails_is_told_and_torch_does_not_find_it(product, fails, device):
    assert product.call(device=device, fails=fails) == -1
    assert "what CUDA says" in product.error()
    assert product.library.fake_cleared() >= 1
    assert product.call(device=device) == 0, "and the device is prepared by the next call"


def test_what_is_of_the_whole_device(tilelang):
    with pytest.raises(BuildError, match=r"`kept` keeps tensors in the L2 cache") as caught:
        tilelang.compiled(FLAT.format(name="kept") + "constants = { wide = 1024 }\n", "sm_90a")
    assert "annotate_l2_hit_ratio" in caught.value.hint
