"""Calls of the CuTe ops; what they are compared with is Torch, in sums without rounding."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.semantics.calls import Call, case, huge, random_bytes
from tests.gpu.semantics.drawing import Draw
from tests.gpu.semantics.of_tilelang import rows_scattered, swapped, toggled


@case("cute")
def axpy(draw: Draw) -> Call:
    dtype = draw.choose((torch.float32, torch.bfloat16))
    if draw.chance(0.5):
        y, x = draw.pair(draw.length(), dtype)
    else:
        shape, layouts = draw.shape(), ("plain", "offset", "any")
        y, x = (
            draw.tensor(*shape, dtype=dtype, layout=draw.choose(layouts), written=True)
            for _ in range(2)
        )

    def reference(y: Any, x: Any, a: float) -> None:
        y.copy_((y.float() + a * x.float()).to(y.dtype))

    return Call((y, x, draw.whole()), reference)


@case("cute")
def add_strided(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(1025)
    dtype = draw.choose((torch.float32, torch.float16, torch.int32))
    values = draw.normal if dtype.is_floating_point else None
    x, y = (draw.tensor(m, n, dtype=dtype, values=values) for _ in range(2))
    return Call((x, x if draw.chance(0.2) else y), lambda x, y: x + y, any_nan=True)


@case("cute")
def count_values(draw: Draw) -> Call:
    bins = draw.choose((0, 1, 2, 16, 17, 100))
    layouts = ("plain", "offset")
    values = draw.tensor(
        draw.length(),
        dtype=torch.int32,
        layout=draw.choose(layouts),
        values=draw.between(-3, bins + 5),
    )
    counts = draw.tensor(bins, dtype=torch.int32, layout=draw.choose(layouts))

    def reference(values: Any, counts: Any) -> None:
        inside = values[(values >= 0) & (values < bins)]
        counts += torch.bincount(inside, minlength=bins).int()

    return Call((values, counts), reference)


@case("cute")
def counted(draw: Draw) -> Call:
    bins = draw.choose((0, 1, 2, 16, 17, 100))
    values = draw.tensor(
        draw.length(),
        dtype=torch.int32,
        layout=draw.choose(("plain", "offset")),
        values=draw.between(-3, bins + 5),
    )

    def reference(values: Any, bins: int) -> Any:
        inside = values[(values >= 0) & (values < bins)]
        return torch.bincount(inside, minlength=bins).int()

    return Call((values, bins), reference)


@case("cute")
def scatter_rows(draw: Draw) -> Call:
    count, rows, n = draw.size(), draw.size(), draw.length(1025)
    dtype = draw.choose((torch.float32, torch.int8))
    x = draw.tensor(count, n, dtype=dtype)
    layout = draw.choose(("plain", "offset", "any"))
    index = draw.tensor(count, dtype=torch.int32, values=draw.distinct(rows), layout=layout)
    return Call((x, index, draw.tensor(rows, n, dtype=dtype, written=True)), rows_scattered)


@case("cute")
def toggle_bytes(draw: Draw) -> Call:
    layout = draw.choose(("plain", "offset"))
    x = draw.tensor(draw.length(), dtype=torch.int8, layout=layout)
    return Call((x, draw.random.randint(-128, 300)), toggled)


@case("cute")
def toggle_few_bytes(draw: Draw) -> Call:
    return toggle_bytes(draw)


@case("cute")
def swap(draw: Draw) -> Call:
    return Call(draw.pair(draw.length(), torch.float32), swapped)


@case("cute")
def row_sums(draw: Draw) -> Call:
    x = draw.tensor(draw.size(), draw.length(1025), dtype=draw.choose((torch.int32, torch.uint8)))
    return Call((x,), lambda x: x.sum(1, dtype=torch.int64))


huge("cute.toggle_bytes: 2**31 + 5")(lambda: Call((random_bytes(2**31 + 5), 85), toggled))
huge("cute.toggle_bytes: 2**32 + 1, misaligned")(
    lambda: Call((random_bytes(2**32 + 2)[1:], 85), toggled)
)
huge("cute.toggle_few_bytes: 2**31 + 5, where `n` has 32 bits")(
    lambda: Call((random_bytes(2**31 + 5), 85), toggled)
)
huge("cute.toggle_few_bytes: 2**31 - 4096")(lambda: Call((random_bytes(2**31 - 4096), 85), toggled))


@huge("cute.add_strided: elements further apart than 32 bits say")
def _() -> Call:
    memory = torch.randn(2**32 + 2**20, device="cuda", dtype=torch.float16)
    x = memory.as_strided((3, 5), (2**31, 7))
    return Call((x, torch.randn(3, 5, device="cuda").half()), lambda x, y: x + y)


@huge("cute.row_sums: [3, 2**31 - 64] of one number")
def _() -> Call:
    x = torch.tensor([[3], [5], [250]], device="cuda", dtype=torch.uint8).expand(3, 2**31 - 64)
    wanted = torch.tensor([3, 5, 250], device="cuda") * (2**31 - 64)
    return Call((x,), lambda _: wanted)


@huge("cute.add_strided: [2**16, 2**16] of one number, more than `cute.size` counts")
def _() -> Call:
    one = torch.randn(1, 1, device="cuda").half().expand(2**16, 2**16)
    return Call((one, one), lambda x, y: x + y)
