"""What the kernel promises, compared with Torch in float64.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/add-cute=<folder that holds build/> pytest tests``.
"""

import random
import subprocess
import sys

import pytest
import torch
from kernels import get_kernel

pytestmark = [
    pytest.mark.kernels_ci,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

REPO_ID = "kbuild-examples/add-cute"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SIZES = [1, 7, 8, 9, 127, 1023, 1024, 1025, 65_536, 1_000_003]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


def check(x: torch.Tensor, y: torch.Tensor, alpha: float, actual: torch.Tensor) -> None:
    assert actual.dtype == x.dtype
    expected = x.double() + alpha * y.double()
    tolerance = 2.0 * torch.finfo(x.dtype).eps
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def pair(*shape: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, *shape, device="cuda").to(dtype)
    return x, y


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_sizes(kernel, size, dtype):
    x, y = pair(size, dtype=dtype)
    check(x, y, 0.75, kernel.add(x, y, alpha=0.75))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("begin", [1, 3, 8])
@pytest.mark.parametrize("size", [16, 4099])
def test_unaligned(kernel, size, begin, dtype):
    x, y = pair(size + begin, dtype=dtype)
    check(x[begin:], y[:size], -2.0, kernel.add(x[begin:], y[:size], alpha=-2.0))


@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 1, 3, 1), (1,), ()], ids=str)
def test_shapes(kernel, shape):
    x, y = pair(*shape, dtype=torch.float16)
    out = kernel.add(x, y)
    assert out.shape == x.shape
    check(x, y, 1.0, out)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)], ids=str)
def test_empty(kernel, shape):
    x = torch.empty(shape, device="cuda", dtype=torch.float16)
    assert kernel.add(x, x).shape == x.shape


def test_random_strides(kernel):
    choose = random.Random(0)  # noqa: S311
    for _ in range(200):
        rows, columns = choose.randint(1, 70), choose.choice([choose.randint(1, 300), 64, 128])
        dtype = choose.choice(DTYPES)

        def matrix(rows=rows, columns=columns, dtype=dtype):
            down, across = choose.choice([1, 1, 2]), choose.choice([1, 1, 1, 3])
            begin = choose.choice([0, 0, 1, 16])
            whole = torch.randn(rows * down, columns * across + begin, device="cuda").to(dtype)
            one = whole[::down, begin::across]
            return one.t().contiguous().t() if choose.random() < 0.2 else one

        x, y, out = matrix(), matrix(), matrix()
        assert kernel.add(x, y, alpha=0.5, out=out) is out
        check(x, y, 0.5, out)


def test_out_leaves_its_neighbours_alone(kernel):
    whole = torch.full((64, 3 * 65), 7.0, device="cuda", dtype=torch.float16)
    x, y = pair(64, 65, dtype=torch.float16)
    check(x, y, 1.0, kernel.add(x, y, out=whole[:, 1::3]))
    whole[:, 1::3] = 7.0
    assert (whole == 7.0).all()


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < 24 * 2**30,
    reason="needs 24 GiB of GPU memory",
)
def test_more_elements_than_32_bits_can_count(kernel):
    x = torch.ones(2**31 + 4097, device="cuda", dtype=torch.float16)
    out = kernel.add(x, x)
    assert (out[:: 2**20] == 2).all()
    assert (out[-5000:] == 2).all()


def test_streams(kernel):
    x, y = pair(1 << 20, dtype=torch.float16)
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            results.append(kernel.add(x, y))
    torch.cuda.synchronize()
    for result in results:
        check(x, y, 1.0, result)


def test_graph(kernel):
    x, y = pair(4096, dtype=torch.float16)
    kernel.add(x, y)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.add(x, y)
    x.copy_(torch.randn_like(x))
    graph.replay()
    check(x, y, 1.0, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device(kernel):
    x, y = (one.to("cuda:1") for one in pair(4096, dtype=torch.float16))
    check(x, y, 1.0, kernel.add(x, y))


def test_compile(kernel):
    compiled = torch.compile(
        lambda x, y: kernel.add(kernel.add(x, y) * 2, y), fullgraph=True, backend="aot_eager"
    )
    x, y = pair(5000, dtype=torch.float32)
    torch.testing.assert_close(compiled(x, y), (x + y) * 2 + y)


def test_opcheck(ops):
    x, y = pair(10, 10, dtype=torch.float16)
    torch.library.opcheck(ops.add.default, (x, y), {"alpha": 2.0})
    torch.library.opcheck(ops.add_strided.default, (x.t(), y, torch.empty_like(x)))


def test_refusals(kernel, ops):
    x, y = pair(16, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="float64"):
        kernel.add(x.double(), x.double())
    with pytest.raises(RuntimeError):
        kernel.add(x, y[:15])
    with pytest.raises(RuntimeError, match="float32"):
        kernel.add(x, y.float())
    with pytest.raises((RuntimeError, NotImplementedError)):
        ops.add(x.cpu(), y.cpu())


def test_no_compiler_is_needed():
    code = f"""
import sys
for name in ("cutlass", "tvm_ffi", "nvidia_cutlass_dsl"):
    sys.modules[name] = None
import torch
from kernels import get_kernel
kernel = get_kernel({REPO_ID!r}, version=1)
x = torch.ones(4096, device="cuda", dtype=torch.float16)
assert (kernel.add(x, x) == 2).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
