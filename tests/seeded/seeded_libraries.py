"""Libraries that are wrong: what they ask of a system, what they bring, what they share."""

from __future__ import annotations

from tests.seeded.seeded_recipe import CPU, GOOD, ID, Case, Recipe, Stub, calling, on
from tests.seeded.seeded_variants import for_another_cpu

PLAIN, STABLE, TVM_FFI = GOOD["cpu"], GOOD["stable"], GOOD["tvm-ffi"]
NEW_TVM_FFI = Stub("libtvm_ffi.so", ("TVMFFISetCustomAllocator",))
NEW_LIBC = Stub("libc.so.6", ("__isoc23_strtol",), "GLIBC_2.38")
NEWER = on(PLAIN, source=calling("__isoc23_strtol"), stubs=(NEW_LIBC,), flags=("-nostdlib",))
NEW_LIBSTDCXX = Stub("libstdc++.so.6", ("_ZSt21ios_base_library_initv",), "GLIBCXX_3.4.32")
THROWS = """
#include <stdexcept>
#include <string>
__attribute__((used)) static void refuse(const char *why) { throw std::runtime_error(why); }
"""
CUDART = r"""
__attribute__((used)) static const char *volatile shared_memory = "/cudart.shm.%08llx%08llx";
extern "C" __attribute__((used)) int cudaMalloc() { return 0; }
"""
UNIQUE = """
template <class T> struct Counter { static int value; };
template <class T> int Counter<T>::value = 0;
template struct __attribute__((visibility("default"))) Counter<int>;
"""
WRITTEN_CODE = """
__asm__(".text\\n.globl here\\n.hidden here\\nhere: .8byte there\\n"
        ".data\\nthere: .8byte 0\\n.text\\n");
"""
SHOWN = '__attribute__((visibility("default")))'


def needing(*stubs: Stub, source: str = "") -> Recipe:
    """The good variant, linked against stand-ins."""
    return on(PLAIN, source=source, stubs=stubs)


def taking(name: str) -> Recipe:
    """The good stable-ABI variant with a function of Torch."""
    return on(STABLE, source=calling(name), stubs=(Stub("libtorch_cpu.so", (name,)),))


VERSIONS = (
    Case("newer glibc", "a symbol of glibc 2.38", "manylinux", "GLIBC_2.38", NEWER),
    Case("newer glibc, stripped", "the same, `strip --strip-all`", "manylinux",
        "`__isoc23_strtol` needs GLIBC_2.38", on(NEWER, strip=True)),
    Case("newer glibc, lld", "the same, linked by lld", "manylinux",
        "`__isoc23_strtol` needs GLIBC_2.38", on(NEWER, linker="lld")),
    Case("newer libstdc++", "a symbol of GCC 13's libstdc++", "manylinux", "GLIBCXX_3.4.32",
        needing(NEW_LIBSTDCXX, source=calling(*NEW_LIBSTDCXX.symbols))),
)  # fmt: skip

INSIDE = (
    Case("static libstdc++", "`-static-libstdc++`", "static", "has libstdc++ inside",
        on(PLAIN, source=THROWS, flags=("-static-libstdc++",)),
        also=("clash", "manylinux", "unique")),
    Case(
        "static libstdc++, hidden",
        "the same, its symbols hidden, stripped",
        "static",
        "has libstdc++ inside",
        on(PLAIN, source=THROWS, flags=("-static-libstdc++", "-Wl,--exclude-libs,ALL"), strip=True),
        also=("manylinux",),
    ),
    Case("second cudart", "traces of `libcudart_static.a`", "static", "has libcudart_static inside",
        on(PLAIN, source=CUDART)),
)  # fmt: skip

LINKING = (
    Case("rpath", "`-rpath` with old tags", "rpath", "RPATH is `/opt/build/lib`",
        on(PLAIN, flags=("-Wl,--disable-new-dtags,-rpath,/opt/build/lib",))),
    Case("runpath", "`-rpath $ORIGIN` with new tags", "rpath", "RUNPATH is `$ORIGIN`",
        on(PLAIN, flags=("-Wl,--enable-new-dtags,-rpath,$ORIGIN",))),
    Case("text relocations", "an address in code", "rpath", "text relocations",
        on(PLAIN, source=WRITTEN_CODE, flags=("-Wl,-z,notext",))),
    Case("executable stack", "`-z execstack`", "rpath", "executable stack",
        on(PLAIN, flags=("-Wl,-z,execstack",))),
    Case("Torch not needed", "a shim function, libtorch not linked", "needed",
        "does not need `libtorch*.so`", on(STABLE, source=calling("aoti_torch_get_sizes"))),
    Case("needs libpython", "`-lpython3.11`", "needed", "needs `libpython3.11.so.1.0`",
        needing(Stub("libpython3.11.so.1.0", unused=True))),
    Case(
        "needs a wheel's libgomp",
        "the libgomp of one Torch wheel",
        "needed",
        "needs `libgomp-a34b3233.so.1`",
        needing(Stub("libgomp-a34b3233.so.1", ("GOMP_parallel",)), source=calling("GOMP_parallel")),
        also=("undefined",),
    ),
    Case(
        "needs an unknown library",
        "a library that nobody brings",
        "needed",
        "needs `libseeded.so.1`",
        needing(Stub("libseeded.so.1", ("seeded_helper",)), source=calling("seeded_helper")),
        also=("undefined",),
    ),
    Case("defined by nobody", "a source that was forgotten", "undefined", "`relu_forward`",
        on(PLAIN, source=calling("relu_forward"))),
    Case("absent from Torch", "a function that Torch's headers declare and its libraries lack",
        "undefined", "takes `at::absent()` from Torch",
        on(PLAIN, source=calling("_ZN2at6absentEv")), also=("needed",)),
    Case("unique symbol", "a template's static member, exported", "unique", "STB_GNU_UNIQUE",
        on(PLAIN, source=UNIQUE, flags=("-fgnu-unique",))),
    Case("exported helper", "a C function without `static`", "clash", "exports `forward`",
        on(PLAIN, source=f'extern "C" {SHOWN} int forward() {{ return 1; }}\n')),
)  # fmt: skip

PYTHON = (
    Case("not in abi3", "a private function of CPython", "python-abi",
        "`_PyLong_AsByteArray` is not in CPython's stable ABI",
        on(PLAIN, source=calling("_PyLong_AsByteArray"))),
    Case("abi3 of 3.10", "a function that came with 3.10", "python-abi",
        "`PyModule_AddObjectRef` came to the stable ABI in 3.10",
        on(PLAIN, source=calling("PyModule_AddObjectRef"))),
    Case(
        "wrong PyInit",
        "an entry point of another name",
        "python-abi",
        "it exports `PyInit__relu`",
        on(PLAIN, binding='#include "registration.h"\nREGISTER_EXTENSION(_relu)\n'),
    ),
    Case("no abi3 in the name", "named for one CPython", "python-abi", "is not named `*.abi3.so`",
        on(PLAIN, file=f"{ID}.cpython-311-{CPU}-linux-gnu.so")),
)  # fmt: skip

TORCH = (
    Case(
        "C++ of Torch",
        "a `c10` function in a stable-ABI variant",
        "torch-abi",
        "from Torch's C++",
        taking("_ZN3c106detail14torchCheckFailEPKcS2_jS2_"),
        also=("undefined",),
    ),
    Case(
        "newer shim",
        "a shim function of Torch 2.13, for 2.11",
        "torch-abi",
        "came with Torch 2.13, after 2.11",
        taking("torch_new_generator_handle"),
    ),
)

FUNCTIONS = (
    Case(
        "no function",
        "a TVM-FFI variant whose library exports none",
        "tvm-ffi-abi",
        "exports no function",
        on(TVM_FFI, binding=""),
    ),
    Case(
        "newer TVM-FFI",
        "a function of the runtime that 0.1.13 brought",
        "tvm-ffi-abi",
        "came with TVM-FFI 0.1.13",
        on(TVM_FFI, source=calling(*NEW_TVM_FFI.symbols), stubs=(NEW_TVM_FFI,)),
    ),
)


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


DAMAGED = (
    Case(
        "wrong CPU",
        "a library for another CPU",
        "binary",
        "but the variant is for",
        on(PLAIN, edit=for_another_cpu),
    ),
    Case(
        "truncated",
        "half of a library",
        "binary",
        "ELF",
        on(PLAIN, edit=_half),
    ),
)
LIBRARIES = (*VERSIONS, *INSIDE, *LINKING, *PYTHON, *TORCH, *FUNCTIONS, *DAMAGED)
