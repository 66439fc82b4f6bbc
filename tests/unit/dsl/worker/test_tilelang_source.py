"""What is made of a source that TileLang wrote, compiled with a CUDA runtime that writes down."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.tilelang_source import (
    DeviceKernel,
    DimensionCheck,
    EntryFunction,
    complete_source,
)

FAKES = Path(__file__).resolve().parents[3] / "support" / "fakes"
LAUNCH = """
	{{
		cudaLaunchConfig_t config;
		cudaLaunchAttribute attribute[1];
		attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute[0].val.programmaticStreamSerializationAllowed = 1;
		config.attrs = attribute;
		config.numAttrs = 1;
		config.stream = stream;
		config.gridDim = dim3((n + 255) / 256, 1, 1);
		config.blockDim = dim3(128, 1, 1);
		config.dynamicSmemBytes = 64;
		cudaLaunchKernelEx(&config, {kernel}, x, n);
	}}
	TILELANG_CHECK_LAST_ERROR("{kernel}");
"""
HOST = """
#define TL_EXPORT
#define ERROR_BUF_SIZE 1024
static char error_buf[ERROR_BUF_SIZE];

extern "C" TL_EXPORT const char* get_last_error() {
    return error_buf;
}

extern "C" TL_EXPORT int init() {
    error_buf[0] = '\\0';
    cudaError_t result = cudaFuncSetAttribute(add_kernel, 8, 64);
    return result;
}

extern "C" TL_EXPORT int call(float* __restrict__ x, int n, cudaStream_t stream=cudaStreamDefault) {
LAUNCHES
	return 0;
}
"""
DEVICE = """
void debug_print_msg(const char*) {}  // as the DSL's headers have it
extern "C" __global__ void add_kernel(float* x, int n);
extern "C" __global__ void add_kernel(float* x, int n) {
  for (int i = 0; i < n; ++i) x[i] += 1;
}
"""
ENTRY = EntryFunction(
    ("void*", "int32_t", "int64_t"),
    ("static_cast<float*>(a0)", "a1"),
    (DimensionCheck("a2", "4", "x.shape[1]"),),
)
LAUNCHES, PREPARED, PDL, GRID, CLEARED, ON_STREAM, LOADED = range(7)


def emitted() -> str:
    return DEVICE + HOST.replace("LAUNCHES", LAUNCH.format(kernel="add_kernel"))


def compiled(source: str, symbol: str, folder: Path) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    file, target = folder / f"{symbol}.cpp", folder / f"{symbol}.o"
    file.write_text(source)
    names = (
        f"-DPROBE={symbol}_probe",
        f"-DPROBED={symbol}_probed",
        "-D__CUDACC__",
        "-include",
        "cuda_launches.h",
    )
    command = ("g++", "-std=c++20", "-w", "-fPIC", f"-I{FAKES}", *names, "-c", str(file))
    done = subprocess.run((*command, "-o", str(target)), capture_output=True, text=True)  # noqa: TID251, PLW1510
    assert done.returncode == 0, done.stderr
    return target


def linked(folder: Path, *objects: Path) -> ctypes.CDLL:
    target = folder / "linked.so"
    command = ("g++", "-shared", "-o", str(target), *map(str, objects))
    subprocess.run(command, check=True)  # noqa: TID251
    return ctypes.CDLL(str(target))


class Made:
    """An object's two functions, and what its launches were like."""

    def __init__(self, library: ctypes.CDLL, symbol: str) -> None:
        self.entry, self.error = getattr(library, symbol), getattr(library, f"{symbol}_error")
        self.entry.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p]
        self.error.restype = ctypes.c_char_p
        self.probe, self.probed = (
            getattr(library, f"{symbol}_probe"),
            getattr(library, f"{symbol}_probed"),
        )

    def call(self, n: int = 3, width: int = 4) -> tuple[int, list[float]]:
        data = (ctypes.c_float * 8)(*range(8))
        result = self.entry(ctypes.addressof(data), n, width, 0x1234)
        return result, list(data)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Three objects of the same kernel in one library; one of them waits for those before it."""
    folder = tmp_path_factory.mktemp("tilelang")
    objects = [
        compiled(
            complete_source(emitted(), name, [DeviceKernel("add_kernel", pdl)], ENTRY), name, folder
        )
        for name, pdl in (("one", False), ("two", True), ("three", False))
    ]
    return linked(folder, *objects)


def test_loading_ahead(library):
    """It is prepared as with a call, and the driver is asked for each kernel's code."""
    two = Made(library, "two")
    two.probe(6, 0)
    before = two.probed(PREPARED), two.probed(LAUNCHES), two.probed(LOADED)
    assert library.two_load() == 0
    two.call()
    after = two.probed(PREPARED), two.probed(LAUNCHES), two.probed(LOADED)
    assert after == (before[0] + 1, before[1] + 1, before[2] + 1)
    two.probe(6, 209)
    try:
        assert library.two_load() == -1
        assert two.error() == b"what CUDA says"
    finally:
        two.probe(0, 0)


def test_errors_belong_to_their_thread(library):
    one = Made(library, "one")
    one.call(width=6)
    others: list[bytes] = []

    def other() -> None:
        one.call(width=7)
        others.append(one.error())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert others == [b"x.shape[1] is 7, and the kernel is compiled for 4"]
    assert b"is 6" in one.error()


def test_another_source_is_refused():
    kernels = [DeviceKernel("add_kernel")]
    for old, new in (
        ("static char error_buf", "char error_buf"),
        ("get_last_error()", "last_error()"),
        ("cudaLaunchKernelEx(&config", "cudaLaunchKernelExC(&config"),
    ):
        with pytest.raises(RefusalError, match="TileLang wrote"):
            complete_source(emitted().replace(old, new), "k", kernels, ENTRY)


@pytest.mark.parametrize(
    ("written", "n", "blocks"),
    [
        ("(int)(n + 5) / 4", 7, 3),
        ("(int)(n * 1073741824 + 4096) / 4096", 4, 2**20 + 1),  # TileLang casts the dividend
        ("max((int64_t)n * 1048576 >> 10, 1)", 4, 4096),
        ("n * 2147483647", 3, 2**32 - 1),  # which no launch takes
        ("n * 1073741824 * 4 + 1", 1, 2**32 - 1),
    ],
)
def test_grids_are_computed_with_64_bits(written, n, blocks, tmp_path):
    text = emitted().replace("dim3((n + 255) / 256", f"dim3({written}")
    maximum = "template <class T> static T max(T a, T b) { return a < b ? b : a; }\n"
    source = complete_source(maximum + text, "wide", [DeviceKernel("add_kernel", False)], ENTRY)
    made = Made(linked(tmp_path, compiled(source, "wide", tmp_path)), "wide")
    made.call(n)
    assert made.probed(GRID) & 0xFFFFFFFF == blocks
