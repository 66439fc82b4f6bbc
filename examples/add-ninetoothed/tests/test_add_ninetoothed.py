"""What the kernel promises, compared with Torch in float64.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/add-ninetoothed=<folder that holds build/> pytest tests``.
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

REPO_ID = "kbuild-examples/add-ninetoothed"
SIZES = [1, 2, 15, 16, 17, 511, 512, 513, 2048, 2049, 65_536, 1_000_003]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


def vector(size: int, step: int = 1, offset: int = 0) -> torch.Tensor:
    whole = torch.randn(size * step + offset, device="cuda", dtype=torch.float16)
    return whole[offset::step][:size]


def check(x: torch.Tensor, y: torch.Tensor, actual: torch.Tensor) -> None:
    expected = (x.double() + y.double()).half()
    assert actual.dtype == torch.float16
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(kernel, size):
    x, y = vector(size), vector(size)
    check(x, y, kernel.add(x, y))


@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (3, 5), (8, 0), (8, 8)], ids=str)
@pytest.mark.parametrize("size", [16, 4096, 4099])
def test_unaligned(kernel, size, offsets):
    x, y = (vector(size, offset=offset) for offset in offsets)
    check(x, y, kernel.add(x, y))


@pytest.mark.parametrize("steps", [(2, 1), (1, 3), (16, 16), (7, 2)], ids=str)
@pytest.mark.parametrize("size", [48, 4096, 4099])
def test_strided(kernel, size, steps):
    x, y = (vector(size, step) for step in steps)
    check(x, y, kernel.add(x, y))


def test_expanded(kernel):
    x, y = vector(1).expand(4096), vector(4096)
    check(x, y, kernel.add(x, y))


def test_random_layouts(kernel):
    choose = random.Random(0)  # noqa: S311
    for _ in range(200):
        size = choose.choice([choose.randint(1, 64), choose.randint(1, 70_000)])
        x, y, out = (
            vector(size, choose.choice([1, 1, 1, 2, 3, 16]), choose.choice([0, 0, 1, 8]))
            for _ in range(3)
        )
        assert kernel.add(x, y, out=out) is out
        check(x, y, out)


def test_out_leaves_its_neighbours_alone(kernel):
    whole = torch.full((3 * 5000,), 7.0, device="cuda", dtype=torch.float16)
    x, y = vector(4999), vector(4999)
    out = whole[1::3][:4999]
    check(x, y, kernel.add(x, y, out=out))
    whole[1::3][:4999] = 7.0
    assert (whole == 7.0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)], ids=str)
def test_empty(kernel, shape):
    x = torch.empty(shape, device="cuda", dtype=torch.float16)
    assert kernel.add(x, x).shape == x.shape


def test_other_shapes(kernel):
    x = torch.randn(33, 65, device="cuda", dtype=torch.float16).t()
    y = torch.randn(65, 33, device="cuda", dtype=torch.float16)
    check(x, y, kernel.add(x, y))


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < 24 * 2**30,
    reason="needs 24 GiB of GPU memory",
)
def test_more_elements_than_32_bits_can_count(kernel):
    size = 2**31 + 4097
    x = torch.ones(size, device="cuda", dtype=torch.float16)
    out = kernel.add(x, x[:1].expand(size))
    assert out.shape == x.shape
    assert (out[:: 2**20] == 2).all()
    assert (out[-5000:] == 2).all()


def test_far_apart(kernel):
    step = 2**28
    x = vector(9, step)  # the last one is 2**31 elements behind the first
    y = vector(9)
    check(x, y, kernel.add(x, y))


def test_streams(kernel):
    x, y = vector(1 << 20), vector(1 << 20)
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            results.append(kernel.add(x, y))
    torch.cuda.synchronize()
    for result in results:
        check(x, y, result)


def test_graph(kernel):
    x, y = vector(4096), vector(4096)
    kernel.add(x, y)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.add(x, y)
    x.copy_(vector(4096))
    graph.replay()
    check(x, y, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device(kernel):
    x, y = vector(4096).to("cuda:1"), vector(4096).to("cuda:1")
    check(x, y, kernel.add(x, y))


def test_compile(kernel):
    compiled = torch.compile(
        lambda x, y: kernel.add(kernel.add(x, y) * 2, y), fullgraph=True, backend="aot_eager"
    )
    x, y = vector(5000), vector(5000)
    torch.testing.assert_close(compiled(x, y), (x + y) * 2 + y, rtol=0, atol=0)


def test_opcheck(ops):
    torch.library.opcheck(ops.add.default, (vector(100), vector(100)))
    torch.library.opcheck(ops.add_out.default, (vector(100, 2), vector(100), vector(100)))


def test_refusals(kernel, ops):
    x = vector(16)
    with pytest.raises(RuntimeError, match="float32"):
        kernel.add(x.float(), x.float())
    with pytest.raises(RuntimeError, match="the shapes differ"):
        kernel.add(x, vector(17))
    with pytest.raises(RuntimeError):
        ops.add(x, vector(17))
    with pytest.raises(RuntimeError):
        ops.add(x.reshape(4, 4), x.reshape(4, 4))


def test_no_compiler_is_needed():
    code = f"""
import sys
for name in ("ninetoothed", "triton"):
    sys.modules[name] = None
import torch
from kernels import get_kernel
kernel = get_kernel({REPO_ID!r}, version=1)
x = torch.ones(4096, device="cuda", dtype=torch.float16)
assert (kernel.add(x, x) == 2).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
