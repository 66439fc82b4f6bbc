"""Functions that launch cuTile kernels, as authors write them."""

import math

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def next_power_of_2(n):
    return 1 << (n - 1).bit_length()


@ct.kernel
def scaled_add_kernel(x, y, out, scale, BLOCK: ConstInt):
    i = ct.bid(0)
    total = ct.load(x, index=(i,), shape=(BLOCK,)) + ct.load(y, index=(i,), shape=(BLOCK,)) * scale
    ct.store(out, index=(i,), tile=ct.astype(total, out.dtype))


def scaled_add(x, y, scale=1.0, **_):
    """`x + scale * y`, over all elements of contiguous tensors."""
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), 1024),)
    arguments = (x.view(-1), y.view(-1), out.view(-1), scale, 1024)
    ct.launch(torch.cuda.current_stream(), grid, scaled_add_kernel, arguments)
    return out


def add_(x, y, scale=1.0):
    """`x += scale * y`, in place."""
    blocks = math.ceil(x.shape[0] / 256)
    arguments = (x, y, x, scale, 256)
    ct.launch(torch.cuda.current_stream(), (blocks, 1, 1), scaled_add_kernel, arguments)
    return x


@ct.kernel
def softmax_kernel(x, out, BLOCK: ConstInt):
    row = ct.bid(0)
    padding = ct.PaddingMode.NEG_INF
    tile = ct.astype(ct.load(x, index=(row, 0), shape=(1, BLOCK), padding_mode=padding), ct.float32)
    powers = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    result = powers / ct.sum(powers, axis=1, keepdims=True)
    ct.store(out, index=(row, 0), tile=ct.astype(result, out.dtype))


def softmax(x):
    """The softmax of the last dimension; more warps for long rows."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    kernel = softmax_kernel
    if rows.shape[1] > 2048:
        kernel = softmax_kernel.replace_hints(occupancy=2)
    arguments = (rows, out, next_power_of_2(rows.shape[1]))
    ct.launch(torch.cuda.current_stream(), (rows.shape[0],), kernel, arguments)
    return out.view(x.shape)


@ct.kernel
def matmul_kernel(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    columns = ct.num_tiles(out, axis=1, shape=(M, N))
    tiles = ct.num_tiles(out, axis=0, shape=(M, N)) * columns
    for tile in range(ct.bid(0), tiles, ct.num_blocks(0)):
        row, column = tile // columns, tile % columns
        total = ct.full((M, N), 0, dtype=ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
            x = ct.load(a, index=(row, k), shape=(M, K), padding_mode=ZERO)
            y = ct.load(b, index=(k, column), shape=(K, N), padding_mode=ZERO)
            total = ct.mma(x, y, total)
        ct.store(out, index=(row, column), tile=ct.astype(total, out.dtype))


def matmul(a, b):
    """The product, by as many blocks as there are multiprocessors, of any strides."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{a.shape} and {b.shape} do not fit")
    (m, _), (_, n) = a.shape, b.shape
    size = 64 if a.dtype.itemsize == 2 else 32
    sm_count = torch.cuda.get_device_properties(a.device).multi_processor_count
    grid = (min(sm_count, math.ceil(m / size) * math.ceil(n / size)), 1, 1)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, size, size, 32))
    return out


@ct.kernel
def copy_kernel(x, out, ROWS: ConstInt, B: ConstInt):
    at = (ct.bid(0), ct.bid(1))
    ct.store(out, index=at, tile=ct.load(x, index=at, shape=(B, B)))


def halves_transposed(x):
    """The transposes of both halves of the columns, one below the other.

    `copy_kernel` has no use for the number of rows, which it has as a constant.
    """
    m, n = x.shape
    out = torch.empty((n, m), device=x.device, dtype=x.dtype)
    middle, stream = n // 2, torch.cuda.current_stream().cuda_stream
    for part, to in ((x[:, :middle], out[:middle]), (x[:, middle:], out[middle:])):
        grid = (ct.cdiv(part.shape[1], 32), ct.cdiv(m, 32))
        ct.launch(stream, grid, copy_kernel, (part.t(), to, m, 32))
    return out


def squares(x):
    """The sum of the squares of a row in float32."""
    x = ct.astype(x, ct.float32)
    return ct.sum(x * x, axis=1, keepdims=True)


@ct.kernel
def rms_norm_kernel(x, weight, out, rstd, N: ConstInt, eps, BLOCK: ConstInt):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, BLOCK), padding_mode=ZERO)
    factor = ct.rsqrt(squares(tile) / N + eps)
    ct.store(rstd, index=(row,), tile=ct.reshape(factor, (1,)))
    scale = ct.reshape(ct.load(weight, index=(0,), shape=(BLOCK,), padding_mode=ZERO), (1, BLOCK))
    ct.store(out, index=(row, 0), tile=ct.astype(tile * factor * scale, out.dtype))


@ct.kernel
def rms_norm_backward_kernel(dout, x, weight, rstd, dx, partial, N: ConstInt, BLOCK: ConstInt):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, BLOCK), padding_mode=ZERO)
    grad = ct.load(dout, index=(row, 0), shape=(1, BLOCK), padding_mode=ZERO)
    scale = ct.reshape(ct.load(weight, index=(0,), shape=(BLOCK,), padding_mode=ZERO), (1, BLOCK))
    factor = ct.reshape(ct.load(rstd, index=(row,), shape=(1,)), (1, 1))
    normal = ct.astype(tile, ct.float32) * factor
    grad = ct.astype(grad, ct.float32)
    ct.store(partial, index=(row, 0), tile=grad * normal)
    scaled = grad * scale
    mean = ct.sum(scaled * normal, axis=1, keepdims=True) / N
    ct.store(dx, index=(row, 0), tile=ct.astype((scaled - normal * mean) * factor, dx.dtype))


class RMSNorm(torch.autograd.Function):
    """The norm of rows, with gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = x.contiguous().view(-1, x.shape[-1])
        m, n = rows.shape
        out = torch.empty_like(rows)
        rstd = torch.empty(m, device=x.device, dtype=torch.float32)
        block = next_power_of_2(n)
        arguments = (rows, weight, out, rstd, n, eps, block)
        ct.launch(torch.cuda.current_stream(), (m,), rms_norm_kernel, arguments)
        ctx.save_for_backward(rows, weight, rstd)
        ctx.block = block
        return out.view(x.shape)

    @staticmethod
    def backward(ctx, dout):
        rows, weight, rstd = ctx.saved_tensors
        m, n = rows.shape
        grads = dout.contiguous().view(-1, n)
        dx = torch.empty_like(rows)
        partial = torch.empty((m, n), device=rows.device, dtype=torch.float32)
        arguments = (grads, rows, weight, rstd, dx, partial, n, ctx.block)
        ct.launch(torch.cuda.current_stream(), (m,), rms_norm_backward_kernel, arguments)
        return dx.view(dout.shape), partial.sum(0).to(weight.dtype), None


def tuned(x):
    """Its block is measured, which no package does."""
    out = torch.empty_like(x)
    found = ct.tune.exhaustive_search(
        [128, 256], torch.cuda.current_stream(), lambda block: (ct.cdiv(x.shape[0], block),),
        scaled_add_kernel, lambda block: (x, x, out, 1.0, block),
    )  # fmt: skip
    block = found.best.config
    grid, arguments = (ct.cdiv(x.shape[0], block),), (x, x, out, 1.0, block)
    ct.launch(torch.cuda.current_stream(), grid, scaled_add_kernel, arguments)
    return out


def unnamed(x):
    """Its kernel is made in a function, where no build finds it."""
    kernel = ct.kernel(lambda x, y, out: None)
    ct.launch(torch.cuda.current_stream(), (1,), kernel, (x, x, x))
    return x


def listed(x):
    """It passes a list of arrays."""
    ct.launch(torch.cuda.current_stream(), (1,), copy_kernel, ([x, x], x, 8, 32))
    return x


def on_stream_0(x):
    """It launches on another stream than the one that it is called on."""
    ct.launch(0, (1,), copy_kernel, (x, x, 8, 32))
    return x


@ct.kernel
def row_sums_kernel(x, out, N: ConstInt):
    total = ct.full((1,), 0, dtype=ct.float32)
    for column in range(N):
        total = total + ct.load(x, index=(ct.bid(0), column), shape=(1, 1)).reshape((1,))
    ct.store(out, index=(ct.bid(0),), tile=total)


def row_sums(x):
    """Each length of its rows needs an image."""
    out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    arguments = (x, out, x.shape[1])
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), row_sums_kernel, arguments)
    return out
