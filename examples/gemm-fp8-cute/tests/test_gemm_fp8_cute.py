"""What the kernel promises, compared with Torch in float64.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/gemm-fp8-cute=<folder that holds build/> pytest tests``.
"""

import random

import pytest
import torch
from kernels import get_kernel

pytestmark = [
    pytest.mark.kernels_ci,
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a Hopper GPU",
    ),
]

REPO_ID = "kbuild-examples/gemm-fp8-cute"
BLOCK = 128


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, ...]:
    """Scales of all magnitudes, as blocks of activations have them."""
    blocks = -(-k // BLOCK)
    return (
        torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn),
        torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn),
        torch.exp(torch.randn(m, blocks, device="cuda") * 2),
        torch.exp(torch.randn(-(-n // BLOCK), blocks, device="cuda") * 2),
    )


def check(a, b, scales_a, scales_b, actual) -> None:
    """Rounded once to bfloat16; the tensor cores keep about 14 bits of a sum of 128 products."""
    (m, k), n = a.shape, b.shape[0]
    assert actual.dtype == torch.bfloat16
    assert actual.shape == (m, n)
    of_a = scales_a.double().repeat_interleave(BLOCK, 1)[:, :k]
    of_b = scales_b.double().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:n, :k]
    left, right = a.double() * of_a, b.double() * of_b
    expected, size = left @ right.t(), left.abs() @ right.abs().t()
    allowed = expected.abs() * torch.finfo(torch.bfloat16).eps + size * 2.0**-11
    assert bool(((actual.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize(
    "shape",
    [(128, 128, 128), (256, 256, 512), (1, 16, 16), (16, 4096, 4096), (127, 272, 80),
     (300, 48, 4096), (8192, 256, 128), (128, 8192, 640), (129, 528, 1040), (2048, 2048, 7168)],
    ids=str,
)  # fmt: skip
def test_the_fast_kernel(kernel, shape):
    values = operands(*shape)
    check(*values, kernel.gemm(*values))


@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 63, 17), (100, 7, 333), (64, 100, 16)], ids=str)
def test_the_plain_kernel(kernel, shape):
    values = operands(*shape)
    check(*values, kernel.gemm(*values))


def test_an_unaligned_address(kernel):
    a, b, *scales = operands(64, 64, 128)
    moved = torch.empty(64 * 128 + 1, device="cuda", dtype=a.dtype)[1:].view(64, 128)
    moved.copy_(a)
    check(moved, b, *scales, kernel.gemm(moved, b, *scales))


def test_random_shapes(kernel):
    choose = random.Random(0)  # noqa: S311
    for _ in range(60):
        m = choose.randint(1, 1500)
        n, k = (choose.choice([16 * choose.randint(1, 100), choose.randint(1, 300)]) for _ in "nk")
        values = operands(m, n, k)
        check(*values, kernel.gemm(*values))


@pytest.mark.parametrize("shape", [(0, 16, 16), (16, 0, 16), (16, 16, 0)], ids=str)
def test_empty(kernel, shape):
    values = operands(*shape)
    out = kernel.gemm(*values)
    assert out.shape == shape[:2]
    assert not out.any()


def test_the_same_result_every_time(kernel):
    values = operands(2048, 2048, 2048)
    first = kernel.gemm(*values)
    for _ in range(50):
        assert torch.equal(kernel.gemm(*values), first)


def test_what_torch_computes(kernel):
    a, b, scales_a, scales_b = operands(512, 512, 1024)
    by_column = scales_a.t().contiguous().t()
    expected = torch._scaled_mm(a, b.t(), by_column, scales_b.t(), out_dtype=torch.bfloat16)
    actual = kernel.gemm(a, b, scales_a, scales_b)
    assert (actual - expected).norm() < 5e-3 * expected.norm()


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (300, 200), (5, 1000)], ids=str)
def test_quantize(kernel, shape, rows):
    x = torch.randn(shape, device="cuda") * 100
    rounded, scales = kernel.quantize(x, rows)
    assert scales.shape == (-(-shape[0] // rows), -(-shape[1] // BLOCK))
    each = scales.repeat_interleave(rows, 0).repeat_interleave(BLOCK, 1)
    each = each[: shape[0], : shape[1]]
    # Three bits after the point, and the smallest steps near zero.
    allowed = x.abs() / 16 + each * 2.0**-10
    assert bool(((rounded.float() * each - x).abs() <= allowed * 1.001).all())


def test_graph(kernel):
    values = operands(512, 512, 512)
    kernel.gemm(*values)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.gemm(*values)
    values[2].mul_(3)
    graph.replay()
    check(*values, out)


def test_compile(kernel):
    compiled = torch.compile(lambda *x: kernel.gemm(*x) * 2, fullgraph=True, backend="aot_eager")
    values = operands(256, 256, 256)
    torch.testing.assert_close(compiled(*values), kernel.gemm(*values) * 2)


def test_opcheck(ops):
    # Not `test_schema`: Torch's test multiplies float8 tensors, which Torch does not support.
    tests = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(ops.gemm.default, operands(64, 64, 128), test_utils=tests)


def test_refusals(kernel, ops):
    a, b, scales_a, scales_b = operands(32, 32, 256)
    with pytest.raises(RuntimeError):
        kernel.gemm(a, b[:, :128], scales_a, scales_b)
    with pytest.raises(RuntimeError, match="bfloat16"):
        kernel.gemm(a.bfloat16(), b.bfloat16(), scales_a, scales_b)
    with pytest.raises(RuntimeError, match="scales_a"):
        kernel.gemm(a, b, scales_a[:, :1], scales_b)
    with pytest.raises(RuntimeError, match="contiguous"):
        ops.gemm(a[:, :128], b[:, :128], scales_a[:, :1], scales_b[:, :1])
