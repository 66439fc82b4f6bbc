"""Objects for GPUs, linked with a runtime that writes down what they do."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kbuild.ops.image import UnitImage

FAKES = Path(__file__).resolve().parents[1] / "fakes"
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
def twice(x):
    n = T.dynamic("n")
    x: T.Tensor[[n], T.float32]
    out = T.empty([n], T.float32)
    with T.Kernel(T.ceildiv(n, 128), threads=128) as block:
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

    def __init__(self, objects: Sequence[UnitImage], folder: Path, fake: str = "cudart.c") -> None:
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
        command = (
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            "-o",
            str(library),
            str(FAKES / fake),
            str(table),
        )
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
