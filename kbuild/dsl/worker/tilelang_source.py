"""Rewrites TileLang's generated source so that it can be linked with others; text only.

TileLang 0.1.15 generates a file that is meant to be a library of its own. The changes:

- `call`, `init`, `get_last_error` and the kernels get unique names, since C has one namespace;
- the text of an error belongs to its thread;
- each device is initialised, once;
- programmatic dependent launch is requested only for kernels that wait for it;
- the result of a launch is checked, and an empty grid is not launched;
- the number of blocks is computed with 64 bits. TileLang writes `(int)(n + 255) / 256` for
  the quotient of an `n` with 64 bits as an `int`, which is one block where `n` is 2^32 + 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
"""Removed: it would report another kernel's error; each launch is checked by itself."""
_HIP_LAUNCH = re.compile(
    r"(\t)(\w+<<<(dim3\([^;]*?\)), dim3\([^;]*?>>>\([^;]*\));\n"
    r'\tTILELANG_CHECK_LAST_ERROR\("\w+"\);'
)
_COOPERATIVE = re.compile(r"TILELANG_CHECK\((cudaLaunchCooperativeKernel\([^;]*\))\);")
_ERROR = "static char error_buf[ERROR_BUF_SIZE];"
_EXPORT = 'extern "C" TL_EXPORT'
# A device with a higher number is initialised at every call.
_DEVICES = 64
_GLOBAL_IN_HEADERS = ("debug_print_msg", "debug_print_buffer_value")
"""Functions of the DSL's headers that are not inline."""


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel of the device code."""

    name: str
    pdl: bool = False
    """True if it waits for the kernel before it."""


@dataclass(frozen=True)
class DimensionCheck:
    """A check that a dimension has the value that the code assumes."""

    argument: str
    wanted: str
    label: str
    """Name in messages, such as `A.shape[1]`."""


@dataclass(frozen=True)
class EntryFunction:
    """The C function that the launcher calls."""

    parameters: tuple[str, ...]
    """C++ types."""
    arguments: tuple[str, ...]
    """Arguments of `call`, in its order."""
    checks: tuple[DimensionCheck, ...] = ()
    runtime: str = "cuda"
    """Prefix of the runtime's functions, `cuda` or `hip`; empty for the CPU."""


def complete_source(
    text: str, symbol: str, kernels: Sequence[DeviceKernel], entry: EntryFunction
) -> str:
    """Return the whole source of an object: the DSL's code, and the C functions of `entry`.

    The functions are named `symbol` and `<symbol>_error`.

    Raises:
        RefusalError: the DSL's code does not have the form of the supported release.
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
    return renames + _HEAD.read_text("utf-8") + text + _entry(symbol, entry, kernels)


def _replaced(text: str, old: str, new: str) -> str:
    count = text.count(old)
    if count != 1:
        raise RefusalError(f"TileLang wrote {count} times `{old}`, where one was expected")
    return text.replace(old, new)


def _launches(text: str, pdl: set[str]) -> str:
    # A call with empty grids returns early: descriptors of empty tensors cannot be created.
    text = _GRID.sub(lambda match: f"config.gridDim = {_wide(match[1])};", text)
    grids = re.findall(r"config\.gridDim = (kbuild_grid\([^;]*\));", text)
    text = _LAST_ERROR.sub("", text)
    text = _COOPERATIVE.sub(r"KBUILD_LAUNCHED(\1);", text)
    text = _LAUNCH.sub(lambda match: _launch(match, pdl), text)
    # `_launch` writes this differently, so what is left has an unknown form.
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
    """C++ code of a grid, `dim3(...)`, that is computed with 64 bits."""
    # Each operand: a cast of the result would come after the overflow.
    numbers = _OPERAND.sub(r"(int64_t)\g<0>", _CAST.sub("", grid.removeprefix("dim3")))
    return f"kbuild_grid{numbers}"


def _launch(match: re.Match[str], pdl: set[str]) -> str:
    value = "/*pdl*/1" if match["kernel"] in pdl else "0"
    # TileLang writes a comma even if the optimiser has removed all parameters of the kernel.
    rest = re.sub(r",\s*\)", ")", match["rest"])
    launched = f"cudaLaunchKernelEx(&config, {match['kernel']}{rest}"
    return (
        f"{match['head']}{value};{match['body']}"
        f"if (!kbuild_is_empty(config.gridDim)) KBUILD_LAUNCHED({launched});"
    )


_HEAD = Path(__file__).with_name("tilelang_head.txt")
"""C++ that precedes the generated code."""


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
    """C++ code that initialises each device once; doing it twice concurrently is harmless.

    `<symbol>_load` also makes the driver load the kernels into the current device.
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
