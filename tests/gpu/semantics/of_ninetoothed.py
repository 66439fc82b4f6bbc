"""Calls of the NineToothed ops, compared with NineToothed's own launch where it is installed.

Otherwise, and beyond what 32 bits reach, they are compared with Torch.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from tests.gpu.semantics.calls import Call, case, huge, random_bytes, source
from tests.gpu.semantics.drawing import Draw

INSTALLED = importlib.util.find_spec("ninetoothed") is not None
FLOATS = (torch.float16, torch.float32)


@functools.cache
def _made(name: str, *args: Any, **options: Any) -> Any:
    """The kernel as `ninetoothed.make` compiles it at its first call."""
    import ninetoothed  # type: ignore[import-not-found]

    arguments = [
        getattr(ninetoothed, str(a)[6:]) if isinstance(a, torch.dtype) else a for a in args
    ]
    made = getattr(source("ninetoothed"), f"{name}_premake")(*arguments)
    return ninetoothed.make(*made, **({"num_warps": 8, "num_stages": 3} | options))


def _either(own: Callable[..., Any], torchs: Callable[..., Any]) -> Callable[..., Any]:
    return own if INSTALLED else torchs


@case("ninetoothed")
def add(draw: Draw) -> Call:
    dtype = draw.choose((*FLOATS, torch.int8))
    n = draw.length()
    values = draw.normal if dtype.is_floating_point else None
    x, y = (draw.tensor(n, dtype=dtype, values=values) for _ in range(2))

    def own(x: Any, y: Any) -> Any:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        _made("add", dtype, 512)(x, y, out)
        return out

    return Call((x, x if draw.chance(0.2) else y), _either(own, lambda x, y: x + y), any_nan=True)


@case("ninetoothed")
def axpy(draw: Draw) -> Call:
    dtype = draw.choose(FLOATS)
    y, x = draw.pair(draw.length(), dtype)

    def torchs(y: Any, x: Any, a: float) -> None:
        y.copy_((y.float() + a * x.float()).to(y.dtype))

    def own(y: Any, x: Any, a: float) -> None:
        _made("axpy", dtype)(y, x, a)

    return Call((y, x, draw.whole()), _either(own, torchs))


@case("ninetoothed")
def square(draw: Draw) -> Call:
    dtype = draw.choose((torch.float32, torch.int32, torch.int64, torch.float64))
    x = draw.tensor(draw.length(), dtype=dtype, written=True)

    def own(x: Any) -> None:
        _made("square")(x)

    return Call((x,), _either(own, _squared))


def _squared(x: Any) -> None:
    x.copy_(x * x)


@case("ninetoothed")
def softmax(draw: Draw) -> Call:
    dtype = draw.choose(FLOATS)
    x = draw.tensor(draw.size(), draw.size(129), dtype=dtype)

    def own(x: Any) -> Any:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        _made("softmax", dtype, 128)(x, out)
        return out

    torchs = lambda x: torch.softmax(x.float(), 1).to(x.dtype)  # noqa: E731
    near = 2e-3 if dtype == torch.float16 else 2e-6
    return Call((x,), _either(own, torchs), tolerance=near)


@case("ninetoothed")
def add4(draw: Draw) -> Call:
    dtype = draw.choose(FLOATS)
    shape = tuple(draw.size(33) for _ in range(4))
    x, y = (draw.tensor(*shape, dtype=dtype, values=draw.normal) for _ in range(2))

    def own(x: Any, y: Any) -> Any:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        _made("add4", 4, dtype)(x, y, out)
        return out

    return Call((x, y), _either(own, lambda x, y: x + y), any_nan=True)


@case("ninetoothed")
def mm(draw: Draw) -> Call:
    m, k, n = draw.size(), draw.size(), draw.size()
    x, y = (draw.tensor(*shape, dtype=torch.float16) for shape in ((m, k), (k, n)))

    def own(x: Any, y: Any) -> Any:
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
        _made("mm", num_warps=4, num_stages=2)(x, y, out)
        return out

    return Call((x, y), _either(own, lambda x, y: (x.float() @ y.float()).half()))


@case("ninetoothed")
def blend(draw: Draw) -> Call:
    """Numbers with 64 bits: NineToothed's own launch through Triton has 32, and is not asked."""
    shape = tuple(draw.size(7) for _ in range(6))
    x, y = (draw.tensor(*shape, dtype=torch.float64) for _ in range(2))
    alpha = draw.choose((0.5, 2.0**-40, 1 + 2.0**-30, 3.0))
    return Call((x, y, alpha, draw.whole()), lambda x, y, a, b: a * x + (1 - b) * y)


@case("ninetoothed")
def row_max(draw: Draw) -> Call:
    dtype = draw.choose(FLOATS)
    x = draw.tensor(draw.size(), draw.size(257), dtype=dtype)

    def own(x: Any) -> Any:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if x.shape[1]:  # 0 is no size of a block
            _made("row_max", dtype)(x, out)
        return out

    torchs = lambda x: x - x.amax(1, keepdim=True) if x.numel() else x.clone()  # noqa: E731
    return Call((x,), _either(own, torchs))


huge("ninetoothed.add: 2**31 + 5 bytes")(
    lambda: Call((random_bytes(2**31 + 5), random_bytes(2**31 + 5)), lambda x, y: x + y)
)
huge("ninetoothed.add: 2**32 + 1 bytes, misaligned")(
    lambda: Call((random_bytes(2**32 + 2)[1:], random_bytes(2**32 + 1)), lambda x, y: x + y)
)
huge("ninetoothed.add: 2**31 + 3 bytes, all one element")(
    lambda: Call((random_bytes(1).expand(2**31 + 3), random_bytes(2**31 + 3)), lambda x, y: x + y)
)


@huge("ninetoothed.square: elements further apart than 32 bits say")
def _() -> Call:
    x = torch.randn(2**31 + 2**20, device="cuda").as_strided((5,), (2**29 + 3,))
    return Call((x,), _squared)


@huge("ninetoothed.add4: [2, 3, 4, 5] over 2**31 halves")
def _() -> Call:
    memory = torch.randn(2**31 + 2**20, device="cuda", dtype=torch.float16)
    x = memory.as_strided((2, 3, 4, 5), (2**31 - 2**21, 2**19, 11, 2))
    return Call((x, torch.randn(2, 3, 4, 5, device="cuda").half()), lambda x, y: x + y)
