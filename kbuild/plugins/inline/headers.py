"""The headers of Torch that the sources of a `load_inline` need, by the names in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

from kbuild.plugins.inline.request import InlineRequest
from kbuild.sources.cxx import CxxToken, cxx_tokens

_TORCH_WORDS = re.compile(r"\b(?:torch|at|c10|ATen|AT_\w+|TORCH_\w+|C10_\w+)\b")
_WHOLE_NAMESPACES = frozenset(
    (
        *("nn", "optim", "data", "jit", "autograd", "serialize", "save", "load", "tensor", "cuda"),
        *("linalg", "fft", "special", "nested", "sparse", "indexing", "manual_seed", "enumtype"),
    )
)
"""Members of `torch::` that only `<torch/all.h>` declares, or that are others in `at::`."""
_WHOLE_WORDS = frozenset(("requires_grad", "set_requires_grad", "AutogradContext"))
_HEADERS_OF_WORDS = (
    (re.compile(r"AT_DISPATCH_V2|AT_DISPATCH_\w*_V2"), "ATen/Dispatch_v2.h"),
    (re.compile(r"AT_DISPATCH_\w+"), "ATen/Dispatch.h"),
    (
        re.compile(r"parallel_for|parallel_reduce|get_num_threads|set_num_threads"),
        "ATen/Parallel.h",
    ),
    (re.compile(r"TORCH_LIBRARY\w*"), "torch/library.h"),
    (re.compile(r"TensorIterator\w*"), "ATen/TensorIterator.h"),
    (re.compile(r"cout|cerr|clog|[io]?stringstream"), "ATen/core/Formatting.h"),
    (re.compile(r"D(?:imVector|IM_VECTOR\w*)"), "ATen/core/DimVector.h"),
    (re.compile(r"IValue"), "ATen/core/ivalue.h"),
    (re.compile(r"List"), "ATen/core/List.h"),
    (re.compile(r"Dict"), "ATen/core/Dict.h"),
    (re.compile(r"LOG|D?CHECK\w*"), "c10/util/Logging.h"),
    (re.compile(r"function_ref|FunctionRef"), "c10/util/FunctionRef.h"),
    (re.compile(r"(?:multi)?map"), "map"),
    (re.compile(r"(?:multi)?set"), "set"),
    (re.compile(r"unordered_(?:multi)?set"), "unordered_set"),
    (re.compile(r"set(?:w|fill|precision|base)|put_\w+"), "iomanip"),
    (re.compile(r"chrono"), "chrono"),
    (re.compile(r"condition_variable\w*"), "condition_variable"),
    (re.compile(r"type_index"), "typeindex"),
)
"""Headers that `<torch/all.h>` includes and most sources do not need, by the names that need them.
"""
_ALL = re.compile(
    r"globalContext|AT_CUDA_(?:DRIVER|NVRTC)_CHECK|tracer|\bcat(?:_out)?\b"
    r"|DeviceGuard|device_of|ListRef|TensorArg|TensorGeometry|CheckedFrom|maybe_data_ptr"
    r"|\bcheck(?:All)?(?:Same|Dim|Contiguous|Size|Numel|ScalarType|Defined|Backend|Device|Layout)"
    r"|computeStride|defaultStrides"
    r"|ATen/(?:native|Cached|Context|CPU|Device|Empty|Func|Tensor|Tracer|Utils|Wrap|xpu)"
    r"|ATen/(?:cuda|hip)/(?!(?:CUDA|HIP)(?:ContextLight|Context)\.h)"
)
"""Names in sources that need what the light headers in `inline/light/ATen` leave out."""
_COMPLEX = re.compile(r"complex|thrust|cub\b|cuda/std", re.IGNORECASE)
"""Names in sources that may use Thrust's complex numbers, which Torch's headers include."""
_NAMESPACES = ("at", "torch")
_BEFORE_CALLS = ("return", "else", "case", "throw", "do")


def needs_whole_headers(request: InlineRequest) -> bool:
    """True when the sources use what only `<torch/all.h>` declares, as far as their text shows."""
    for text in (*request.cpp, *request.cuda, *request.sycl):
        tokens = cxx_tokens(text)
        for at, token in enumerate(tokens):
            if token.text in _WHOLE_WORDS:
                return True
            if token.text in _WHOLE_NAMESPACES and _qualifier(tokens, at) == "torch":
                return True
    return False


def device_main(request: InlineRequest, kind: str, suffix: str, operators: Collection[str]) -> str:
    """The file that includes the device sources, after the headers that they need."""
    texts = request.cuda or request.sycl
    uses_torch = any(_TORCH_WORDS.search(text) for text in texts) and not request.is_stable
    lines = light_macros(texts) if operators and uses_torch else []
    # The text of the user's own headers is not read, so they may use complex numbers.
    if lines and (
        request.backend == "rocm"
        or request.include_paths
        or any(pattern.search(text) for pattern in (_ALL, _COMPLEX) for text in texts)
    ):
        lines.insert(0, "#define KBUILD_INLINE_COMPLEX")
    if request.implicit_headers:
        lines += ["#include <torch/types.h>"] * uses_torch
        lines += (
            ["#include <sycl/sycl.hpp>"]
            if request.sycl
            else ["#include <hip/hip_runtime.h>"]
            if request.backend == "rocm"
            else ["#include <cuda.h>", "#include <cuda_runtime.h>"]
        )
    lines += torch_headers(texts, operators) if uses_torch else ()
    return "\n".join(
        [*lines, *(f'#include "{kind}_{at}.{suffix}"' for at in range(len(texts))), ""]
    )


def operators_of(torch: Path) -> frozenset[str]:
    """The operators of a Torch that have a header of their own."""
    return frozenset(path.stem for path in (torch / "include" / "ATen" / "ops").glob("*.h"))


def torch_headers(
    texts: Iterable[str], operators: Collection[str], *, has_signs: bool = False
) -> list[str]:
    """Includes of the operators and the like that the sources name; none without operators.

    `x + y` may be one of tensors: its header costs nothing beside that of another operator.
    """
    headers: set[str] = set()
    for text in texts if operators else ():
        tokens = cxx_tokens(text)
        for at, token in enumerate(tokens):
            if token.kind != "name":
                continue
            matches = (name for word, name in _HEADERS_OF_WORDS if word.fullmatch(token.text))
            # The first alone: `AT_DISPATCH_V2` fits the pattern of the older macros as well.
            headers.update(islice(matches, 1))
            if _may_be_operator(tokens, at):
                # The header of `add` declares `add_out`, too.
                bases = (token.text, token.text.removesuffix("_out"))
                headers.update(f"ATen/ops/{base}.h" for base in bases if base in operators)
    if any(header.startswith("ATen/ops/") for header in headers) or has_signs:
        headers.add("ATen/TensorOperators.h")
    return [f"#include <{header}>" for header in sorted(headers)]


def light_macros(texts: Iterable[str]) -> list[str]:
    """The macros that keep Torch's headers from including each other without need."""
    uses_all = any(_ALL.search(text) for text in texts)
    return ["#define KBUILD_INLINE_ALL"] * uses_all + ["#define AT_PER_OPERATOR_HEADERS"]


def _may_be_operator(tokens: Sequence[CxxToken], at: int) -> bool:
    """True for a call, and for what is named with its namespace; not for members."""
    follows = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if at and tokens[at - 1].text == "::":
        return _qualifier(tokens, at) in _NAMESPACES
    before = tokens[at - 1] if at else None
    if follows != "(" or (before is not None and before.text in (".", "->")):
        return False
    # After a name, it is declared.
    return before is None or before.kind != "name" or before.text in _BEFORE_CALLS


def _qualifier(tokens: Sequence[CxxToken], at: int) -> str:
    """The namespace that is written before a name; empty without one."""
    is_qualified = at >= 2 and tokens[at - 1].text == "::"  # noqa: PLR2004 - namespace and sign
    return tokens[at - 2].text if is_qualified else ""
