"""Calls of the TileLang ops; what they are compared with is Torch, in sums without rounding."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.semantics.calls import Call, case, huge, random_bytes
from tests.gpu.semantics.drawing import Draw

ALIGNED = ("plain", "plain", "plain", "offset")


@case("tilelang")
def axpy(draw: Draw) -> Call:
    if draw.chance(0.5):
        y, x = draw.pair(draw.length(), torch.float32, layout="plain")
    else:
        shape = draw.shape()
        y, x = (draw.tensor(*shape, dtype=torch.float32, layout="plain") for _ in range(2))

    def reference(y: Any, x: Any, a: float) -> None:
        y.add_(x.clone(), alpha=a)

    return Call((y, x, draw.whole()), reference)


@case("tilelang")
def add_row_sums(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(4097)
    dtype = draw.choose((torch.float16, torch.float32))
    x = draw.tensor(m, n, dtype=dtype, layout=draw.choose(ALIGNED))
    sums = draw.tensor(m, dtype=torch.float32, layout=draw.choose(ALIGNED))

    def reference(x: Any, sums: Any) -> None:
        sums += x.float().sum(1)

    return Call((x, sums), reference)


@case("tilelang")
def row_sums(draw: Draw) -> Call:
    x = draw.tensor(
        draw.size(), draw.length(4097), dtype=torch.float16, layout=draw.choose(ALIGNED)
    )
    return Call((x,), lambda x: x.float().sum(1))


@case("tilelang")
def scatter_rows(draw: Draw) -> Call:
    count, rows, n = draw.size(), draw.size(), draw.length(1025)
    x = draw.tensor(count, n, dtype=torch.float32, layout=draw.choose(ALIGNED))
    index = draw.tensor(count, dtype=torch.int32, values=draw.distinct(rows), layout="plain")
    out = draw.tensor(rows, n, dtype=torch.float32, layout=draw.choose(ALIGNED))
    return Call((x, index, out), rows_scattered)


def rows_scattered(x: Any, index: Any, out: Any) -> None:
    inside = (index >= 0) & (index < out.shape[0])
    out[index[inside].long()] = x[inside]


@case("tilelang")
def scale(draw: Draw) -> Call:
    dtype = draw.choose((torch.float16, torch.bfloat16, torch.float32))
    x = draw.tensor(*draw.shape(), dtype=dtype, values=draw.normal, layout=draw.choose(ALIGNED))

    def reference(x: Any, factor: float) -> Any:
        return (x.float() * torch.tensor(factor, device=x.device)).to(x.dtype)

    return Call((x, draw.number()), reference, any_nan=True)


@case("tilelang")
def add_strided(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(1025)
    x, y = (draw.tensor(m, n, dtype=torch.float32, values=draw.normal) for _ in range(2))
    return Call((x, x if draw.chance(0.2) else y), lambda x, y: x + y, any_nan=True)


def toggled(x: Any, value: int) -> None:
    x ^= torch.tensor(value & 255, device=x.device, dtype=torch.uint8).view(torch.int8)


@case("tilelang")
def toggle_bytes(draw: Draw) -> Call:
    x = draw.tensor(*draw.shape(), dtype=torch.int8, layout=draw.choose(ALIGNED))
    return Call((x, draw.random.randint(-128, 300)), toggled)


@case("tilelang")
def copy_bytes(draw: Draw) -> Call:
    x = draw.tensor(*draw.shape(), dtype=torch.int8, layout=draw.choose(ALIGNED))
    return Call((x,), torch.clone)


@case("tilelang")
def swap(draw: Draw) -> Call:
    x, y = draw.pair(draw.length(), torch.int32, layout="plain")
    return Call((x, y), swapped)


def swapped(x: Any, y: Any) -> None:
    kept = x.clone()
    x.copy_(y.clone())
    y.copy_(kept)


@case("tilelang")
def column_sums(draw: Draw) -> Call:
    m, n = draw.length(1025), draw.choose((1, 64, 64, 100, 100, 3))
    dtype = draw.choose((torch.float32, torch.float16))
    x = draw.tensor(m, n, dtype=dtype, layout=draw.choose(ALIGNED))
    return Call((x,), lambda x: x.float().sum(0))


huge("tilelang.toggle_bytes: 2**31 + 5")(lambda: Call((random_bytes(2**31 + 5), 85), toggled))
huge("tilelang.toggle_bytes: 2**32 + 1")(lambda: Call((random_bytes(2**32 + 1), 85), toggled))
huge("tilelang.copy_bytes: 2**31 + 5, where `n` has 32 bits")(
    lambda: Call((random_bytes(2**31 + 5),), torch.clone)
)
huge("tilelang.copy_bytes: 2**31 - 1")(lambda: Call((random_bytes(2**31 - 1),), torch.clone))


@huge("tilelang.add_strided: elements further apart than 32 bits say")
def _() -> Call:
    memory = torch.randn(2**31 + 2**20, device="cuda")
    x = memory.as_strided((3, 5), (2**30, 7))
    return Call((x, torch.randn(3, 5, device="cuda")), lambda x, y: x + y)


@huge("tilelang.add_strided: [2**16, 2**16] of one number")
def _() -> Call:
    one = torch.randn(1, 1, device="cuda").expand(2**16, 2**16)
    other = torch.randn(1, 2**16, device="cuda").expand(2**16, 2**16)
    return Call((one, other), lambda x, y: x + y)


@huge("tilelang.scatter_rows: [40_000, 60_000], whose elements 32 bits do not count")
def _() -> Call:
    x = torch.randint(-8, 8, (40_000, 60_000), device="cuda", dtype=torch.int8).float()
    index = torch.randperm(40_000, device="cuda").int()
    return Call((x, index, torch.zeros_like(x)), rows_scattered)


@huge("tilelang.column_sums: [2**26, 64]")
def _() -> Call:
    x = torch.zeros(2**26, 64, device="cuda", dtype=torch.float16)
    x[:: 2**14] = 1
    return Call((x,), lambda x: torch.full((64,), 2.0**12, device="cuda"))
