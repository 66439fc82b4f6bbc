"""What the kernels promise, compared with Torch in double precision, on the CPU and on a GPU.

``LOCAL_KERNELS=kbuild-examples/elementwise-tilelang=<folder that holds build/> pytest tests`` runs
the tests on a build that is not on the Hub. A process loads the variant of one backend.
"""

import pytest
import torch
from kernels import get_kernel

pytestmark = pytest.mark.kernels_ci

REPO_ID = "kbuild-examples/elementwise-tilelang"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(1,), (3, 7), (0,), (0, 5), (1024,), (100_003,), (2, 3, 255), (17, 1000)]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


def random(*shape):
    return torch.randn(shape, device=DEVICE)


def check(out, expected):
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(kernel, shape):
    x, y = random(*shape), random(*shape)
    check(kernel.add(x, y, alpha=0.5), x.double() + 0.5 * y.double())
    check(kernel.add(x, y), x.double() + y.double())
    check(kernel.mul(x, y), x.double() * y.double())


def test_random_shapes(kernel):
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        size = int(2 ** (torch.rand((), generator=generator) * 20))
        x, y = random(size), random(size)
        check(kernel.add(x, y, alpha=-2.0), x.double() - 2 * y.double())


@pytest.mark.parametrize("columns", [256, 1024])
@pytest.mark.parametrize("rows", [0, 1, 5, 333])
def test_bias(kernel, rows, columns):
    x, bias = random(rows, columns), random(columns)
    check(kernel.add_bias(x, bias), x.double() + bias.double())


def test_strides(kernel):
    x, y = random(64, 32).t(), random(32, 64)
    check(kernel.add(x, y), x.double() + y.double())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(kernel, backend):
    x, y = random(33), random(33)
    compiled = torch.compile(kernel.mul, backend=backend, fullgraph=True)
    check(compiled(x, y), x.double() * y.double())


def test_columns_without_code(kernel):
    with pytest.raises(RuntimeError, match="N = 300; there are images for N = 256, 1024"):
        kernel.add_bias(random(2, 300), random(300))


def test_shapes_that_differ(kernel):
    with pytest.raises(RuntimeError, match="same shape"):
        kernel.add(random(3), random(4))


def test_other_dtypes(kernel):
    with pytest.raises(RuntimeError, match="it takes float32"):
        kernel.mul(random(3).half(), random(3).half())


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU reads from anywhere")
def test_unaligned(kernel):
    with pytest.raises(RuntimeError, match="multiples of 16"):
        kernel.mul(random(9)[1:], random(8))


@pytest.mark.skipif(DEVICE == "cuda", reason="GPUs read from multiples of 16 bytes")
def test_unaligned_on_the_cpu(kernel):
    x, y = random(9)[1:], random(8)
    check(kernel.mul(x, y), x.double() * y.double())
