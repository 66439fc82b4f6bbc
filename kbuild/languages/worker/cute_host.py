"""The host's part of an object: the memory that it asks for, and the CPUs that it runs on.

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
_FUNCTION, _FIELD = "llvm.func", "llvm.getelementptr"
_LAUNCH_CONFIG = "!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
_DYNAMIC_SHARED = [0, 2]


def make_portable(compiled: Any, *, is_wrapped: bool) -> None:
    """Fix what the functions of a compiled module may use, before it is exported.

    Args:
        compiled: by the DSL.
        is_wrapped: whether the export adds functions, which are for the host's target as a whole;
            releases before 4.8 cannot be told one.
    """
    base = _BASE.get(platform.machine())
    if base is None:
        return
    if is_wrapped and hasattr(compiled, "host_target"):
        cpu, features = base
        target = (
            f"llvm -mtriple={platform.machine()}-unknown-linux-gnu -mcpu={cpu} -mattr={features}"
        )
        compiled.host_target = type(compiled.host_target)(target)
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


def dynamic_shared(compiled: Any) -> int:
    """Bytes of shared memory that its launches ask for: the largest number that is written there.

    What a call computes is not known; a cubin says nothing of this memory.
    """
    module = compiled.ir_module
    found = [0]
    with module.context:
        for function in module.body.operations:
            for region in function.operation.regions:
                for block in region.blocks:
                    found += filter(None, map(_asked_for, block.operations))
    return max(found)


def _asked_for(operation: Any) -> int:
    """What a store puts into `dynamicSmemBytes` of a `cudaLaunchConfig_t`."""
    if operation.operation.name != "llvm.store":
        return 0
    value, place = (one.owner for one in operation.operands)
    if getattr(place, "name", "") != _FIELD or getattr(value, "name", "") != "llvm.mlir.constant":
        return 0
    struct, indices = str(place.attributes["elem_type"]), place.attributes["rawConstantIndices"]
    if struct != _LAUNCH_CONFIG or list(indices) != _DYNAMIC_SHARED:
        return 0
    return int(ir.IntegerAttr(value.attributes["value"]).value)
