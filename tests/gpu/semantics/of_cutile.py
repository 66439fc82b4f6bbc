"""Calls of the cuTile ops; what they are compared with is Torch, in sums without rounding."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.semantics.calls import Call, case, huge, random_bytes
from tests.gpu.semantics.drawing import Draw
from tests.gpu.semantics.of_tilelang import toggled


@case("cutile")
def axpy(draw: Draw) -> Call:
    dtype = draw.choose((torch.float32, torch.bfloat16))
    shape, layouts = draw.shape(), ("plain", "offset")
    y, x = (
        draw.tensor(*shape, dtype=dtype, layout=draw.choose(layouts), values=draw.between(-99, 99))
        for _ in range(2)
    )

    def reference(y: Any, x: Any, a: float) -> None:
        y.copy_((y.float() + a * x.float()).to(y.dtype))

    return Call((y, y if draw.chance(0.2) else x, draw.whole()), reference)


@case("cutile")
def add_strided(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(1025)
    dtype = draw.choose((torch.float32, torch.float16, torch.int32))
    values = draw.normal if dtype.is_floating_point else None
    x, y = (draw.tensor(m, n, dtype=dtype, values=values) for _ in range(2))
    return Call((x, x if draw.chance(0.2) else y), lambda x, y: x + y, any_nan=True)


@case("cutile")
def row_sums(draw: Draw) -> Call:
    dtype = draw.choose((torch.int32, torch.int8))
    x = draw.tensor(draw.size(), draw.length(1025), dtype=dtype, values=draw.between(-99, 99))
    return Call((x,), lambda x: x.sum(1, dtype=torch.int32))


@case("cutile")
def toggle_bytes(draw: Draw) -> Call:
    layout = draw.choose(("plain", "offset"))
    x = draw.tensor(draw.length(), dtype=torch.int8, layout=layout)
    return Call((x, draw.random.randint(-128, 127)), toggled)


@case("cutile")
def toggle_few_bytes(draw: Draw) -> Call:
    return toggle_bytes(draw)


huge("cutile.toggle_bytes: 2**31 + 5")(lambda: Call((random_bytes(2**31 + 5), 85), toggled))
huge("cutile.toggle_few_bytes: 2**31 + 5, where sizes have 32 bits")(
    lambda: Call((random_bytes(2**31 + 5), 85), toggled)
)


@huge("cutile.add_strided: elements further apart than 32 bits say")
def _() -> Call:
    memory = torch.randn(2**32 + 2**20, device="cuda", dtype=torch.float16)
    x = memory.as_strided((3, 5), (2**31, 7))
    return Call((x, torch.randn(3, 5, device="cuda").half()), lambda x, y: x + y)
