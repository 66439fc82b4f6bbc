"""A class that `cute.compile` gets with attributes of many kinds, as libraries have them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
from cutlass import Float32, Int32, cute, pipeline
from cutlass.base_dsl.enums import Arch
from cutlass.cute.nvgpu import OperandMajorMode


class Mode(enum.Enum):
    PLAIN = 0
    SQUARE = 1


@dataclass(frozen=True)
class Config:
    threads: int
    mode: Mode


def identity(value, power):
    return value if power == 1 else value * value


class Scale:
    def __init__(self, dtype: type[cutlass.Numeric], config: Config, major: OperandMajorMode):
        self.dtype, self.config, self.major = dtype, config, major
        self.shapes = [(1, 2), {"n": 3}]
        power = 2 if config.mode is Mode.SQUARE else 1
        self.apply = partial(identity, power=power)
        self.barrier = pipeline.NamedBarrier(barrier_id=1, num_threads=config.threads)

    @cute.jit
    def __call__(
        self,
        x: cute.Tensor,
        out: cute.Tensor,
        factor: Float32,
        bias,
        rows: Int32,
        shift: cutlass.Constexpr,
        stream: cuda.CUstream,
    ):
        threads = self.config.threads
        self.kernel(x, out, factor, bias, rows, shift).launch(
            grid=(cute.ceil_div(cute.size(x), threads), 1, 1), block=(threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, x, out, factor, bias, rows, shift: cutlass.Constexpr):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * self.config.threads + thread
        if i < rows * x.shape[1]:
            at = (i // x.shape[1], i % x.shape[1])
            value = self.added(self.apply(x[at].to(Float32)) * factor, bias) + shift
            out[at] = value.to(out.element_type)


@cache
def make_scale(sign: float):
    """Return a class whose function and tuple exist for one sign alone."""

    class Bias(NamedTuple):
        value: cutlass.Float32

    def added(value, bias):
        return value + bias.value * sign

    return type("SignedScale", (Scale,), {"Bias": Bias, "added": staticmethod(added)})


@cache
def compiled_scale(dtype, columns: int, mode: Mode, shift: int = 0, threads: int = 0):
    rows = cute.sym_int()
    x, out = (
        cute.runtime.make_fake_tensor(
            dtype, (rows, columns), (cute.sym_int64(divisibility=8), 1), assumed_align=16
        )
        for _ in range(2)
    )
    major = cutlass.base_dsl.BaseDSL._get_dsl().get_arch_enum()
    threads = threads or (128 if major < Arch.sm_100 else 256)
    kind = make_scale(1.0)
    return cute.compile(
        kind(dtype, Config(threads, mode), OperandMajorMode.K),
        x,
        out,
        Float32(0),
        kind.Bias(Float32(0)),
        1,
        shift,
        cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True),
        options="--enable-tvm-ffi",
    )


def scale(x, factor: float, *, bias: float = 0.0, mode: Mode = Mode.PLAIN, shift: int = 0):
    import torch

    dtypes = {torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}
    out = torch.empty_like(x)
    function = compiled_scale(dtypes[x.dtype], x.shape[1], mode, shift)
    function(x, out, factor, make_scale(1.0).Bias(bias), x.shape[0])
    return out
