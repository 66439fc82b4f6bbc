"""What the kernel promises, compared with Torch in float64.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/mm-ninetoothed=<folder that holds build/> pytest tests``.
"""

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

REPO_ID = "kbuild-examples/mm-ninetoothed"
DTYPES = [torch.float16, torch.bfloat16]
SIZE = 512
LAYOUTS = {
    "contiguous": lambda: matrix(SIZE, SIZE),
    "transposed": lambda: matrix().t(),
    "columns apart": lambda: matrix(SIZE, 2 * SIZE)[:, ::2],
    "rows apart": lambda: matrix(SIZE, 1000)[:, :SIZE],
    "odd pitch": lambda: matrix(SIZE, SIZE + 3)[:, :SIZE],
    "unaligned": lambda: matrix(SIZE * SIZE + 1)[1:].view(SIZE, SIZE),
    "unaligned rows": lambda: matrix(SIZE, SIZE + 8)[:, 1 : SIZE + 1],
    "expanded": lambda: matrix(1, SIZE).expand(SIZE, -1),
}


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (SIZE, SIZE), device="cuda")


def laid_out(layout: str, dtype: torch.dtype) -> torch.Tensor:
    """A matrix of that layout, whatever its dtype: strides and offset are kept."""
    view = LAYOUTS[layout]()
    base = view if view._base is None else view._base
    return base.to(dtype).as_strided(view.shape, view.stride(), view.storage_offset())


def check(lhs: torch.Tensor, rhs: torch.Tensor, actual: torch.Tensor) -> None:
    expected = lhs.double() @ rhs.double()
    assert actual.dtype == lhs.dtype
    eps = torch.finfo(lhs.dtype).eps
    bound = eps * expected.abs() + 1e-4 * (lhs.double().abs() @ rhs.double().abs())
    assert ((actual.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_layouts(kernel, left, right, dtype):
    lhs, rhs = laid_out(left, dtype), laid_out(right, dtype)
    check(lhs, rhs, kernel.mm(lhs, rhs))


def test_far_apart(kernel):
    whole = torch.empty(SIZE, 2**23, device="cuda", dtype=torch.float16)
    lhs = whole[:, :SIZE]  # the last row is beyond what 32 bits reach
    rhs = matrix().half()
    lhs.copy_(matrix())
    check(lhs, rhs, kernel.mm(lhs, rhs))


def test_streams(kernel):
    lhs, rhs = matrix().half(), matrix().half()
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            results.append(kernel.mm(lhs, rhs))
    torch.cuda.synchronize()
    for result in results:
        check(lhs, rhs, result)


def test_graph(kernel):
    lhs, rhs = matrix().half(), matrix().half()
    kernel.mm(lhs, rhs)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.mm(lhs, rhs)
    lhs.copy_(matrix())
    graph.replay()
    check(lhs, rhs, out)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_device(kernel):
    lhs, rhs = matrix().half().to("cuda:1"), matrix().half().to("cuda:1")
    check(lhs, rhs, kernel.mm(lhs, rhs))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compile(kernel, dtype):
    compiled = torch.compile(
        lambda lhs, rhs: kernel.mm(lhs, rhs) + 1, fullgraph=True, backend="aot_eager"
    )
    lhs, rhs = matrix().to(dtype), matrix().to(dtype)
    torch.testing.assert_close(compiled(lhs, rhs), kernel.mm(lhs, rhs) + 1, rtol=0, atol=0)


def test_opcheck(ops):
    torch.library.opcheck(ops.mm.default, (matrix().half(), matrix().half().t()))


def test_refusals(kernel):
    x = matrix().half()
    with pytest.raises(RuntimeError, match="float32"):
        kernel.mm(x.float(), x.float())
    with pytest.raises(RuntimeError):
        kernel.mm(x, x.bfloat16())
    with pytest.raises(RuntimeError):
        kernel.mm(x[:256], x)
    with pytest.raises(RuntimeError):
        kernel.mm(x[:0], x)
    with pytest.raises(RuntimeError):
        kernel.mm(x[:, :256], x)
    with pytest.raises(RuntimeError):
        kernel.mm(x[0], x)


def test_no_compiler_is_needed():
    code = f"""
import sys
for name in ("ninetoothed", "triton"):
    sys.modules[name] = None
import torch
from kernels import get_kernel
kernel = get_kernel({REPO_ID!r}, version=1)
x = torch.eye(512, device="cuda", dtype=torch.float16)
assert torch.equal(kernel.mm(x, x), x)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
