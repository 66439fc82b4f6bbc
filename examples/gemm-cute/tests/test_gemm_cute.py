"""What the kernel promises, compared with Torch in float64.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/gemm-cute=<folder that holds build/> pytest tests``.
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

REPO_ID = "kbuild-examples/gemm-cute"
DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


def operands(m: int, n: int, k: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.randn(m, k, device="cuda").to(dtype),
        torch.randn(k, n, device="cuda").to(dtype),
    )


def check(a: torch.Tensor, b: torch.Tensor, actual: torch.Tensor) -> None:
    """Rounded once: as close as the dtype allows, with float32's error of the sum."""
    assert actual.dtype == a.dtype
    assert actual.shape == (a.shape[0], b.shape[1])
    expected = a.double() @ b.double()
    bound = a.double().abs() @ b.double().abs() * 2.0**-20 * max(1, a.shape[1]) ** 0.5
    allowed = expected.abs() * torch.finfo(a.dtype).eps + bound
    assert bool(((actual.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape",
    [(128, 256, 64), (256, 256, 128), (1, 16, 16), (127, 272, 80), (4096, 4096, 512),
     (300, 48, 4096), (8192, 256, 64), (128, 8192, 64), (129, 528, 1040)],
    ids=str,
)  # fmt: skip
def test_the_fast_kernel(kernel, shape, dtype):
    a, b = operands(*shape, dtype)
    check(a, b, kernel.gemm(a, b))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 63, 17), (100, 7, 333), (64, 100, 16)], ids=str)
def test_the_plain_kernel(kernel, shape, dtype):
    a, b = operands(*shape, dtype)
    check(a, b, kernel.gemm(a, b))


def test_an_unaligned_address(kernel):
    a, b = operands(64, 64, 64, torch.bfloat16)
    moved = torch.empty(64 * 64 + 1, device="cuda", dtype=a.dtype)[1:].view(64, 64)
    moved.copy_(a)
    check(moved, b, kernel.gemm(moved, b))


def test_random_shapes(kernel):
    choose = random.Random(0)  # noqa: S311
    for _ in range(60):
        m = choose.randint(1, 1500)
        n, k = (choose.choice([16 * choose.randint(1, 100), choose.randint(1, 300)]) for _ in "nk")
        a, b = operands(m, n, k, choose.choice(DTYPES))
        check(a, b, kernel.gemm(a, b))


@pytest.mark.parametrize("shape", [(0, 16, 16), (16, 0, 16), (16, 16, 0)], ids=str)
def test_empty(kernel, shape):
    a, b = operands(*shape, torch.bfloat16)
    check(a, b, kernel.gemm(a, b))


def test_the_same_result_every_time(kernel):
    a, b = operands(2048, 2048, 2048, torch.bfloat16)
    first = kernel.gemm(a, b)
    for _ in range(50):
        assert torch.equal(kernel.gemm(a, b), first)


def test_graph(kernel):
    a, b = operands(512, 512, 512, torch.bfloat16)
    kernel.gemm(a, b)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.gemm(a, b)
    a.copy_(torch.randn_like(a))
    graph.replay()
    check(a, b, out)


def test_compile(kernel):
    compiled = torch.compile(
        lambda a, b: kernel.gemm(a, b) * 2, fullgraph=True, backend="aot_eager"
    )
    a, b = operands(256, 256, 256, torch.bfloat16)
    torch.testing.assert_close(compiled(a, b), kernel.gemm(a, b) * 2)


def test_opcheck(ops):
    torch.library.opcheck(ops.gemm.default, operands(64, 64, 64, torch.bfloat16))


def test_refusals(kernel, ops):
    a, b = operands(32, 32, 32, torch.bfloat16)
    with pytest.raises(RuntimeError):
        kernel.gemm(a, b[:16])
    with pytest.raises(RuntimeError, match="float32"):
        kernel.gemm(a.float(), b.float())
    with pytest.raises(RuntimeError):
        kernel.gemm(a, b.half())
    with pytest.raises(RuntimeError, match="contiguous"):
        ops.gemm(a.t(), b)
