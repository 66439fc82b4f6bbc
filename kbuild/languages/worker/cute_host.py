"""The host's part of an object: for every CPU of the machine's kind, not for the one that compiles.

CuTe DSL writes host code for the CPU that it runs on, AVX-512 where there is such. An extension is
run elsewhere, so each function says itself what it may use: what C++ compilers assume, too.
"""

from __future__ import annotations

import json
import platform
from typing import Any

from cutlass._mlir import ir  # type: ignore[import-not-found]

_BASE = {
    "x86_64": ("x86-64", "+cx8,+fxsr,+mmx,+sse,+sse2,+x87"),
    "aarch64": ("generic", "+fp-armv8,+neon"),
}
"""Machine -> LLVM's names of its oldest CPU and of what that can do."""
_KEY = "passthrough"
_FUNCTION = "llvm.func"


def make_portable(compiled: Any) -> None:
    """Fix what the functions of a compiled module may use, before it is exported."""
    base = _BASE.get(platform.machine())
    if base is None:
        return
    module = compiled.ir_module
    with module.context:
        for one in module.body.operations:
            if one.operation.name == _FUNCTION:
                _fix(one, *base)


def _fix(function: Any, cpu: str, features: str) -> None:
    known = function.attributes
    own = list(known[_KEY]) if _KEY in known else []
    pairs = (("target-cpu", cpu), ("tune-cpu", cpu), ("target-features", features))
    new = [ir.Attribute.parse(json.dumps(pair)) for pair in pairs]
    known[_KEY] = ir.ArrayAttr.get([*own, *new])
