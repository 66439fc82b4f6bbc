"""The emitted source made fit to be linked with others: pure text, known to one release.

TileLang 0.1.15 writes a file that is meant to be a library of its own. What is changed:

- `call`, `init`, `get_last_error` and the kernels get names of their own, in one namespace of C;
- the text of an error belongs to its thread;
- each device is initialised, once;
- programmatic dependent launch is asked for only by kernels that wait for it;
- the outcome of a launch is looked at, and an empty grid is no launch;
- how many blocks there are is computed with 64 bits. TileLang writes `(int)(n + 255) / 256` for
  the quotient of an `n` with 64 bits as an `int`, which is one block where `n` is 2^32 + 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kbuild.dsl.worker.protocol import RefusalError

_LAUNCH = re.compile(
    r"(?P<head>programmaticStreamSerializationAllowed = )1;"
    r"(?P<body>(?:(?!cudaLaunchKernelEx).)*?)"
    r"cudaLaunchKernelEx\(&config, (?P<kernel>\w+)(?P<rest>[^;]*);",
    re.DOTALL,
)
_GRID = re.compile(r"config\.gridDim = (dim3\([^;]*\));")
_CAST = re.compile(r"\((?:u?int(?:8|16|32|64)?_t|(?:unsigned )?(?:int|long|long long)|size_t)\)")
_OPERAND = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w*(?!\w|\s*\()|\d+(?![\w.]))")
_LAST_ERROR = re.compile(r'\tTILELANG_CHECK_LAST_ERROR\("\w+"\);\n')
"""It would blame a kernel for what another did before; launches are looked at themselves."""
_HIP_LAUNCH = re.compile(
    r"(\t)(\w+<<<(dim3\([^;]*?\)), dim3\([^;]*?>>>\([^;]*\));\n"
    r'\tTILELANG_CHECK_LAST_ERROR\("\w+"\);'
)
_COOPERATIVE = re.compile(r"TILELANG_CHECK\((cudaLaunchCooperativeKernel\([^;]*\))\);")
_ERROR = "static char error_buf[ERROR_BUF_SIZE];"
_EXPORT = 'extern "C" TL_EXPORT'
_DEVICES = 64
_GLOBAL_IN_HEADERS = ("debug_print_msg", "debug_print_buffer_value")
"""Functions of the DSL's headers that are no inline ones."""


@dataclass(frozen=True)
class DeviceKernel:
    """A device function."""

    name: str
    pdl: bool = False
    """Whether it waits for the kernel before it."""


@dataclass(frozen=True)
class DimensionCheck:
    """A dimension that the code takes for granted."""

    argument: str
    """C++ of its value."""
    wanted: str
    """C++ of what it is taken for."""
    label: str
    """`A.shape[1]`."""


@dataclass(frozen=True)
class EntryFunction:
    """The C function that the launcher calls."""

    parameters: tuple[str, ...]
    """C++ types."""
    arguments: tuple[str, ...]
    """What `call` gets, in its order."""
    checks: tuple[DimensionCheck, ...] = ()
    runtime: str = "cuda"
    """`cuda` or `hip`, as its functions are named; empty on the CPU."""


def complete_source(
    text: str, symbol: str, kernels: Sequence[DeviceKernel], entry: EntryFunction
) -> str:
    """The whole source of an object: what the DSL wrote, and the C functions of `entry`.

    These are called `symbol` and `<symbol>_error`.

    Raises:
        RefusalError: it is not what this release of the DSL is known to write.
    """
    pdl = {kernel.name for kernel in kernels if kernel.pdl}
    text = _replaced(text, _ERROR, "static thread_local char error_buf[ERROR_BUF_SIZE];")
    last = f"static const char* {symbol}_last()"
    text = _replaced(text, f"{_EXPORT} const char* get_last_error()", last)
    text = _replaced(text, f"{_EXPORT} int init()", f"static int {symbol}_init()")
    if entry.runtime:
        text = _replaced(text, f"{_EXPORT} int call(", f"static int {symbol}_call(")
        text = _launches(text, pdl) if entry.runtime == "cuda" else _hip_launches(text)
    else:
        text = re.sub(r"(?<=\n)int32_t call\(", f"int32_t {symbol}_call(", text)
    for kernel in kernels:
        text = re.sub(rf"\b{re.escape(kernel.name)}\b", f"{symbol}_{kernel.name}", text)
    renames = "".join(f"#define {name} {symbol}_{name}\n" for name in _GLOBAL_IN_HEADERS)
    return renames + _HEAD + text + _entry(symbol, entry, kernels)


def _replaced(text: str, old: str, new: str) -> str:
    count = text.count(old)
    if count != 1:
        raise RefusalError(f"TileLang wrote {count} times `{old}`, where one was expected")
    return text.replace(old, new)


def _launches(text: str, pdl: set[str]) -> str:
    # Nothing of a call with an empty grid is done: descriptors of empty tensors cannot be made.
    text = _GRID.sub(lambda match: f"config.gridDim = {_wide(match[1])};", text)
    grids = re.findall(r"config\.gridDim = (kbuild_grid\([^;]*\));", text)
    text = _LAST_ERROR.sub("", text)
    text = _COOPERATIVE.sub(r"KBUILD_LAUNCHED(\1);", text)
    text = _LAUNCH.sub(lambda match: _launch(match, pdl), text)
    if "SerializationAllowed = 1;" in text:
        raise RefusalError("TileLang wrote a launch that kbuild does not know")
    if not grids:
        return text
    blocks = " && ".join(f"kbuild_is_empty({grid})" for grid in grids)
    head = re.compile(r"(static int \w+_call\([^{]*\{\n)")
    return head.sub(lambda match: f"{match[1]}\tif ({blocks}) return 0;\n", text, count=1)


def _hip_launches(text: str) -> str:
    if text.count("<<<") != len(_HIP_LAUNCH.findall(text)):
        raise RefusalError("TileLang wrote a launch that kbuild does not know")
    return _HIP_LAUNCH.sub(_hip_launch, text)


def _hip_launch(match: re.Match[str]) -> str:
    grid = _wide(match[3])
    launched = f"({match[2].replace(match[3], grid, 1)}, hipGetLastError())"
    return f"{match[1]}if (!kbuild_is_empty({grid})) KBUILD_LAUNCHED({launched});"


def _wide(grid: str) -> str:
    """The C++ of a grid, `dim3(...)`, whose numbers have 64 bits all the way."""
    numbers = _OPERAND.sub(r"(int64_t)\g<0>", _CAST.sub("", grid.removeprefix("dim3")))
    return f"kbuild_grid{numbers}"


def _launch(match: re.Match[str], pdl: set[str]) -> str:
    value = "/*pdl*/1" if match["kernel"] in pdl else "0"
    # TileLang writes a comma also where the optimiser has left the kernel no parameter.
    rest = re.sub(r",\s*\)", ")", match["rest"])
    launched = f"cudaLaunchKernelEx(&config, {match['kernel']}{rest}"
    return (
        f"{match['head']}{value};{match['body']}"
        f"if (!kbuild_is_empty(config.gridDim)) KBUILD_LAUNCHED({launched});"
    )


_HEAD = """\
#include <stdint.h>
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#include <stdio.h>
#define KBUILD_LAUNCHED(launch)                                                \\
  do {                                                                         \\
    hipError_t result = hipGetLastError();                                     \\
    const bool is_ours = result == hipSuccess;                                 \\
    if (is_ours) result = (launch);                                            \\
    if (result != hipSuccess) {                                                \\
      snprintf(error_buf, ERROR_BUF_SIZE,                                      \\
               is_ours ? "it cannot be launched: %s" : "before it was: %s",    \\
               hipGetErrorString(result));                                     \\
      return -1;                                                               \\
    }                                                                          \\
  } while (0)
#define KBUILD_LOADED(attributes)                                              \\
  do {                                                                         \\
    const hipError_t result = (attributes);                                    \\
    if (result != hipSuccess) {                                                \\
      (void)hipGetLastError();                                                 \\
      snprintf(error_buf, ERROR_BUF_SIZE, "%s", hipGetErrorString(result));    \\
      return -1;                                                               \\
    }                                                                          \\
  } while (0)
#elif defined(__CUDACC__)
#define KBUILD_LAUNCHED(launch)                                            \\
  do {                                                                     \\
    const cudaError_t result = (launch);                                   \\
    if (result != cudaSuccess) {                                           \\
      (void)cudaGetLastError(); /* or Torch finds it at the next kernel */ \\
      snprintf(error_buf, ERROR_BUF_SIZE, "it cannot be launched: %s",     \\
               cudaGetErrorString(result));                                \\
      return -1;                                                           \\
    }                                                                      \\
  } while (0)
#define KBUILD_LOADED(attributes)                                          \\
  do {                                                                     \\
    const cudaError_t result = (attributes);                               \\
    if (result != cudaSuccess) {                                           \\
      (void)cudaGetLastError();                                            \\
      snprintf(error_buf, ERROR_BUF_SIZE, "%s", cudaGetErrorString(result)); \\
      return -1;                                                           \\
    }                                                                      \\
  } while (0)
#endif
#if defined(__HIPCC__) || defined(__CUDACC__)
static inline bool kbuild_is_empty(dim3 grid) { return grid.x == 0 || grid.y == 0 || grid.z == 0; }
/* What no grid can have becomes what the launch refuses, and not what 32 bits are left of it. */
static inline unsigned kbuild_blocks(int64_t count) {
  return count < 0 || count > INT32_MAX ? UINT32_MAX : (unsigned)count;
}
static inline dim3 kbuild_grid(int64_t x, int64_t y = 1, int64_t z = 1) {
  return dim3(kbuild_blocks(x), kbuild_blocks(y), kbuild_blocks(z));
}
#endif
"""


def _entry(symbol: str, entry: EntryFunction, kernels: Sequence[DeviceKernel]) -> str:
    parameters = [f"{kind} a{at}" for at, kind in enumerate(entry.parameters)]
    lines = [
        "\n#include <atomic>\n#include <cstdint>\n#include <cstdio>\n",
        f'extern "C" const char* {symbol}_error(void) {{ return {symbol}_last(); }}\n',
        _ready(symbol, kernels, entry.runtime) if entry.runtime else "",
        (
            f'extern "C" int {symbol}({", ".join((*parameters, "void* stream"))}) {{\n'
            "  error_buf[0] = 0;\n"
        ),
        *map(_check, entry.checks),
    ]
    arguments = list(entry.arguments)
    if entry.runtime:
        lines.append(f"  if ({symbol}_ready() != 0) return -1;\n")
        arguments.append(f"static_cast<{entry.runtime}Stream_t>(stream)")
    else:
        lines.append(f"  (void)stream;\n  if ({symbol}_init() != 0) return -1;\n")
    return "".join(lines) + f"  return {symbol}_call({', '.join(arguments)});\n}}\n"


def _check(check: DimensionCheck) -> str:
    message = f'"{check.label} is %lld, and the kernel is compiled for %lld"'
    values = f"(long long)({check.argument}), (long long)({check.wanted})"
    return (
        f"  if ({check.argument} != {check.wanted}) {{\n"
        f"    snprintf(error_buf, ERROR_BUF_SIZE, {message}, {values});\n    return -1;\n  }}\n"
    )


def _ready(symbol: str, kernels: Sequence[DeviceKernel], runtime: str) -> str:
    """Once for each device; twice at the same time does no harm.

    `<symbol>_load` does the same, and has the driver load the kernels into the current device.
    """
    of, cast = f"{runtime}FuncGetAttributes", "(const void*)" if runtime == "hip" else ""
    loaded = "".join(
        f"  KBUILD_LOADED({of}(&attributes, {cast}{symbol}_{kernel.name}));\n" for kernel in kernels
    )
    return (
        f"static int {symbol}_ready() {{\n"
        f"  static std::atomic<bool> ready[{_DEVICES}];\n"
        "  int device = 0;\n"
        f"  TILELANG_CHECK({runtime}GetDevice(&device));\n"
        f"  const bool counts = device >= 0 && device < {_DEVICES};\n"
        "  if (!counts || !ready[device].load(std::memory_order_acquire)) {\n"
        f"    if ({symbol}_init() != 0) {{\n"
        f"      (void){runtime}GetLastError(); /* or Torch finds it at the next kernel */\n"
        "      return -1;\n    }\n"
        "    if (counts) ready[device].store(true, std::memory_order_release);\n"
        "  }\n  return 0;\n}\n"
        f'extern "C" int {symbol}_load(void) {{\n  error_buf[0] = 0;\n'
        f"  if ({symbol}_ready() != 0) return -1;\n"
        f"  {runtime}FuncAttributes attributes;\n  (void)attributes;\n{loaded}  return 0;\n}}\n"
    )
