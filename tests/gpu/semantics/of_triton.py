"""Calls of the Triton ops, compared with Triton's own launch of the same source."""

from __future__ import annotations

from typing import Any

import torch

from tests.gpu.semantics.calls import Call, case, cdiv, huge, random_bytes, source
from tests.gpu.semantics.drawing import Draw

k = source("triton")
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@case("triton")
def count_values(draw: Draw) -> Call:
    bins = draw.choose((0, 1, 2, 16, 17, 100))
    layout = draw.choose(("plain", "offset"))
    values = draw.tensor(
        *draw.shape(),
        dtype=draw.choose((torch.int32, torch.int64)),
        layout=layout,
        values=draw.between(-3, bins + 5),
    )
    counts = draw.tensor(bins, dtype=torch.int32, layout=draw.choose(("plain", "offset")))

    def reference(values: Any, counts: Any) -> None:
        n = values.numel()
        k.count_values_kernel[(cdiv(n, 256),)](values, counts, n, bins, BLOCK=256)

    return Call((values, counts), reference)


@case("triton")
def add_row_sums(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(4097)
    x = draw.tensor(m, n, dtype=draw.choose(FLOATS))
    sums = draw.tensor(m, dtype=torch.float32, written=True)

    def reference(x: Any, sums: Any) -> None:
        k.add_row_sums_kernel[(m, cdiv(n, 128))](x, sums, n, *x.stride(), sums.stride(0), BLOCK=128)

    return Call((x, sums), reference)


@case("triton")
def scatter_rows(draw: Draw) -> Call:
    count, rows, n = draw.size(), draw.size(), draw.length(1025)
    dtype = draw.choose((torch.float32, torch.int8, torch.bool))
    x = draw.tensor(count, n, dtype=dtype)
    index = draw.tensor(
        count,
        dtype=draw.choose((torch.int32, torch.int64)),
        values=draw.distinct(rows),
        layout=draw.choose(("plain", "offset", "any")),
    )
    out = draw.tensor(rows, n, dtype=dtype, written=True)

    def reference(x: Any, index: Any, out: Any) -> None:
        strides = (*x.stride(), index.stride(0), *out.stride())
        k.scatter_rows_kernel[(count,)](x, index, out, n, rows, *strides, BLOCK=128)

    return Call((x, index, out), reference)


@case("triton")
def copy_where(draw: Draw) -> Call:
    shape = draw.shape()
    dtype = draw.choose((torch.float16, torch.float64, torch.int64))
    layouts = ("plain", "offset")
    x, out = (draw.tensor(*shape, dtype=dtype, layout=draw.choose(layouts)) for _ in range(2))
    kind = draw.choose((torch.bool, torch.uint8))
    values = None if kind == torch.bool else draw.between(0, 3)
    keep = draw.tensor(*shape, dtype=kind, layout=draw.choose(layouts), values=values)
    if draw.chance(0.2):
        out = x

    def reference(x: Any, keep: Any, out: Any) -> None:
        n = x.numel()
        k.copy_where_kernel[(cdiv(n, 512),)](x, keep, out, n, BLOCK=512)

    return Call((x, keep, out), reference)


@case("triton")
def axpy(draw: Draw) -> Call:
    y, x = draw.pair(draw.length(), draw.choose((torch.float32, torch.float64, torch.bfloat16)))
    a = draw.number()

    def reference(y: Any, x: Any, a: float) -> None:
        n = y.numel()
        k.axpy_kernel[(cdiv(n, 256),)](y, x, n, a, y.stride(0), x.stride(0), BLOCK=256)

    return Call((y, x, a), reference)


@case("triton")
def add_strided(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(1025)
    integers = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    dtype = draw.choose((*FLOATS, torch.float64, *integers))
    values = draw.normal if dtype.is_floating_point else None
    x, y = (draw.tensor(m, n, dtype=dtype, values=values) for _ in range(2))
    if draw.chance(0.2):
        y = x

    def reference(x: Any, y: Any) -> Any:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        strides = (*x.stride(), *y.stride(), *out.stride())
        grid = (cdiv(m, 16), cdiv(n, 64))
        k.add_strided_kernel[grid](x, y, out, m, n, *strides, BLOCK_M=16, BLOCK_N=64)
        return out

    return Call((x, y), reference)


@case("triton")
def toggle_bytes(draw: Draw) -> Call:
    x = draw.tensor(*draw.shape(), dtype=torch.int8, layout=draw.choose(("plain", "offset")))
    return Call((x, draw.random.randint(-128, 300)), _toggled)


def _toggled(x: Any, value: int) -> None:
    n = x.numel()
    k.toggle_bytes_kernel[(cdiv(n, 4096),)](x, n, value, BLOCK=4096, num_warps=8)


def _bytes_copied(x: Any) -> Any:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    k.copy_bytes_kernel[(cdiv(n, 4096),)](x, out, n, BLOCK=4096, num_warps=8)
    return out


@case("triton")
def copy_bytes(draw: Draw) -> Call:
    layout = draw.choose(("plain", "offset", "any"))
    return Call((draw.tensor(*draw.shape(), dtype=torch.int8, layout=layout),), _bytes_copied)


@case("triton")
def copy_few_bytes(draw: Draw) -> Call:
    return copy_bytes(draw)


def _corners(x: Any, out: Any) -> None:
    m, n = x.shape
    grid = (4 if m and n else 0,)
    k.copy_corners_kernel[grid](x, out, m, n, *x.stride(), *out.stride(), num_warps=1)


@case("triton")
def copy_corners(draw: Draw) -> Call:
    m, n = draw.size(), draw.size()
    x = draw.tensor(m, n, dtype=torch.int8)
    return Call((x, draw.tensor(m, n, dtype=torch.int8, written=True)), _corners)


@case("triton")
def scale_bias(draw: Draw) -> Call:
    m, n = draw.size(), draw.length(1025)
    dtype = draw.choose((torch.float32, torch.float16))
    x = draw.tensor(m, n, dtype=dtype, values=draw.normal, layout=draw.choose(("plain", "offset")))
    if draw.chance(0.4):
        rows = draw.tensor(m, n + 5, dtype=dtype, layout="offset")
        x = rows[:, 2 : n + 2]
    bias = None if draw.chance(0.3) else draw.tensor(n, dtype=dtype, values=draw.normal)

    def reference(x: Any, bias: Any, scale: float, negate: bool) -> Any:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        strides = (x.stride(0), bias.stride(0) if bias is not None else 0)
        k.scale_bias_kernel[(m,)](
            x, bias, out, m, n, scale, negate, *strides, HAS_BIAS=bias is not None, BLOCK=256
        )
        return out

    return Call((x, bias, draw.number(), draw.chance(0.5)), reference)


@case("triton")
def swap(draw: Draw) -> Call:
    x, y = draw.pair(draw.length(), draw.choose((torch.float32, torch.uint8)))

    def reference(x: Any, y: Any) -> None:
        n = x.numel()
        k.swap_kernel[(cdiv(n, 256),)](x, y, n, x.stride(0), y.stride(0), BLOCK=256)

    return Call((x, y), reference)


@case("triton")
def total(draw: Draw) -> Call:
    layout = draw.choose(("plain", "offset"))
    x = draw.tensor(*draw.shape(), dtype=draw.choose((torch.int32, torch.int8)), layout=layout)

    def reference(x: Any) -> Any:
        n = x.numel()
        parts = torch.empty(cdiv(n, 256), dtype=torch.int64, device=x.device)
        out = torch.empty(1, dtype=torch.int64, device=x.device)
        k.part_sums_kernel[(len(parts),)](x, parts, n, BLOCK=256)
        k.sum_of_parts_kernel[(1,)](parts, out, len(parts), BLOCK=128)
        return out

    return Call((x,), reference)


@case("triton")
def counted(draw: Draw) -> Call:
    bins = draw.choose((0, 1, 2, 16, 17, 100))
    layout, values = draw.choose(("plain", "offset")), draw.between(-3, bins + 5)
    drawn = draw.tensor(*draw.shape(), dtype=torch.int32, layout=layout, values=values)

    def reference(values: Any, bins: int) -> Any:
        counts = torch.zeros(bins, dtype=torch.int32, device=values.device)
        n = values.numel()
        k.count_values_kernel[(cdiv(n, 256),)](values, counts, n, bins, BLOCK=256)
        return counts

    return Call((drawn, bins), reference)


@case("triton")
def scattered(draw: Draw) -> Call:
    count, rows, n = draw.size(), draw.size(), draw.length(1025)
    x = draw.tensor(count, n, dtype=draw.choose((torch.float32, torch.int8)))
    index = draw.tensor(count, dtype=torch.int32, values=draw.distinct(rows), layout="offset")

    def reference(x: Any, index: Any, rows: int) -> Any:
        out = torch.full((rows, n), -3, dtype=x.dtype, device=x.device)
        strides = (*x.stride(), index.stride(0), *out.stride())
        k.scatter_rows_kernel[(count,)](x, index, out, n, rows, *strides, BLOCK=128)
        return out

    return Call((x, index, rows), reference)


@case("triton")
def extremes_of(draw: Draw) -> Call:
    x = draw.tensor(*draw.shape(), dtype=torch.int32, layout=draw.choose(("plain", "offset")))

    def reference(x: Any, extremes: Any) -> None:
        n = x.numel()
        extremes.zero_()
        k.keep_extremes_kernel[(cdiv(n, 128) + 3,)](x, extremes, n, BLOCK=128)

    return Call((x, draw.tensor(2, dtype=torch.int32, layout="offset")), reference)


huge("triton.copy_bytes: 2**31 + 5")(lambda: Call((random_bytes(2**31 + 5),), _bytes_copied))
huge("triton.copy_bytes: 2**32 + 4096, misaligned")(
    lambda: Call((random_bytes(2**32 + 4096 + 3)[3:],), _bytes_copied)
)
huge("triton.copy_bytes: [65537, 65536]")(
    lambda: Call((random_bytes(65537, 65536),), _bytes_copied)
)
huge("triton.toggle_bytes: 2**32 + 1")(lambda: Call((random_bytes(2**32 + 1), 85), _toggled))
huge("triton.copy_few_bytes: 2**31 + 5, where `n` has 32 bits")(
    lambda: Call((random_bytes(2**31 + 5),), _bytes_copied)
)
huge("triton.copy_few_bytes: 2**31 - 1")(lambda: Call((random_bytes(2**31 - 1),), _bytes_copied))


@huge("triton.copy_corners: [2, 2] with strides beyond 32 bits")
def _() -> Call:
    memory = random_bytes(2**33 + 100)
    x = memory.as_strided((2, 2), (2**32 + 1, 2**31 + 3), 7)
    return Call((x, random_bytes(2, 2)), _corners)


huge("triton.copy_corners: [3, 2**31 + 11]")(
    lambda: Call((random_bytes(3, 2**31 + 11), random_bytes(2**31 + 11, 3).t()), _corners)
)


@huge("triton.add_strided: strides beyond 32 bits, which it takes with 32")
def _() -> Call:
    x = random_bytes(2**32 + 2000).as_strided((2, 33), (2**32, 40))
    y = random_bytes(2, 33)

    def reference(x: Any, y: Any) -> Any:
        return x + y

    return Call((x, y), reference)


@huge("triton.total: 2**31 + 1 elements, more than its `n` counts")
def _() -> Call:
    x = random_bytes(2**31 + 1)
    return Call((x,), lambda x: x.sum(dtype=torch.int64).reshape(1))
