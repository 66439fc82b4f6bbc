"""`silu(gate) * x` in CuTe DSL: each thread works on `vector` neighbours, in float32."""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Float32, cute


@cute.kernel
def swiglu_kernel(gate, x, out, vector: cutlass.Constexpr, threads: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    size = cute.size(gate)
    tile = type(size)(block) * threads + thread
    first = tile * vector
    if first + vector <= size:
        gates, xs, outs = (cute.local_tile(one, (vector,), (tile,)) for one in (gate, x, out))
        opened = gates.load().to(Float32)
        product = opened * xs.load().to(Float32) / (1.0 + cute.math.exp(-opened))
        outs.store(product.to(out.element_type))
    else:
        for behind in cutlass.range_constexpr(vector):
            i = first + behind
            if i < size:
                one = gate[i].to(Float32)
                product = one * x[i].to(Float32) / (1.0 + cute.math.exp(-one))
                out[i] = product.to(out.element_type)


@cute.jit
def swiglu(
    gate: cute.Tensor,
    x: cute.Tensor,
    out: cute.Tensor,
    vector: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    stream: CUstream,
):
    blocks = cute.ceil_div(cute.size(gate), vector * threads)
    swiglu_kernel(gate, x, out, vector, threads).launch(
        grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
    )
