"""What the kernel promises, compared with Torch in double precision.

``LOCAL_KERNELS=kbuild-examples/gemm-cutile=<folder that holds build/> pytest tests`` runs the tests
on a build that is not on the Hub.
"""

import subprocess
import sys

import pytest
import torch
from kernels import get_kernel

pytestmark = [
    pytest.mark.kernels_ci,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

REPO_ID = "kbuild-examples/gemm-cutile"
DTYPES = [torch.float16, torch.bfloat16]
SHAPES = [(1, 1, 1), (3, 5, 7), (16, 64, 32), (128, 128, 128), (100, 200, 300), (16, 4096, 4096)]
SHAPES += [(129, 257, 65), (1000, 1000, 1000), (1024, 512, 2048), (2048, 2048, 64), (8, 8, 20_000)]
DEVICES = [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


def random(*shape, dtype, device="cuda"):
    return torch.randn(shape, dtype=torch.float32, device=device).to(dtype)


def check(out, a, b):
    assert out.shape == (a.shape[0], b.shape[1])
    assert out.dtype == a.dtype
    expected = a.double() @ b.double()
    # Tensor cores keep fewer bits of a sum of K products than float32 has.
    rounding = torch.finfo(a.dtype).eps
    noise = 4e-5 * a.shape[1] ** 0.5
    torch.testing.assert_close(out.double(), expected, rtol=rounding, atol=noise)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(kernel, shape, dtype):
    m, n, k = shape
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    check(kernel.gemm(a, b), a, b)


def test_random_shapes(kernel, dtype):
    generator = torch.Generator().manual_seed(0)
    for index in range(40):
        m, n, k = (int(2 ** (torch.rand((), generator=generator) * 11)) for _ in range(3))
        if index % 2:
            n, k = -(-n // 8) * 8, -(-k // 8) * 8
        a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
        check(kernel.gemm(a, b), a, b)


@pytest.mark.parametrize("first", [True, False], ids=["a", "b"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, 8:][:, :-8],
        lambda x: x[:, 1:][:, :-15],
        lambda x: x[:, ::2],
        lambda x: x[::2],
        lambda x: x[0].expand(96, -1),
        lambda x: x.flatten()[1:][: 64 * 64].view(64, 64),
    ],
    ids=["transposed", "slice", "unaligned slice", "columns", "rows", "expanded", "unaligned"],
)
def test_layouts(kernel, view, first, dtype):
    x = view(random(96, 192, dtype=dtype))
    if first:
        a, b = x, random(x.shape[1], 128, dtype=dtype)
    else:
        a, b = random(80, x.shape[0], dtype=dtype), x
    check(kernel.gemm(a, b), a, b)


@pytest.mark.parametrize("shape", [(0, 4, 4), (4, 0, 4), (4, 4, 0), (0, 0, 0)], ids=str)
def test_empty(kernel, shape, dtype):
    m, n, k = shape
    out = kernel.gemm(random(m, k, dtype=dtype), random(k, n, dtype=dtype))
    assert out.shape == (m, n)
    assert not out.any()


def test_several_streams(kernel, dtype):
    pairs = [(random(256, 256, dtype=dtype), random(256, 256, dtype=dtype)) for _ in range(8)]
    torch.cuda.synchronize()
    outputs = []
    for a, b in pairs:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(1_000_000)
            outputs.append(kernel.gemm(a * 1, b))
    torch.cuda.synchronize()
    for out, (a, b) in zip(outputs, pairs, strict=True):
        check(out, a, b)


@pytest.mark.skipif(len(DEVICES) < 2, reason="needs two GPUs")
def test_devices(kernel, dtype):
    for device in reversed(DEVICES):
        a, b = (random(256, 256, dtype=dtype, device=device) for _ in range(2))
        check(kernel.gemm(a, b), a, b)
    with pytest.raises(RuntimeError, match="device"):
        kernel.gemm(random(8, 8, dtype=dtype), random(8, 8, dtype=dtype, device="cuda:1"))


def test_graph(kernel, dtype):
    a, b = random(512, 512, dtype=dtype), random(512, 512, dtype=dtype)
    kernel.gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.gemm(a, b)
    a.copy_(random(512, 512, dtype=dtype))
    graph.replay()
    check(out, a, b)


def test_compile(kernel, dtype):
    def twice(a, b):
        return kernel.gemm(kernel.gemm(a, b) * 0.1, b)

    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 64, 100):
        a, b = random(rows, 64, dtype=dtype), random(64, 64, dtype=dtype)
        torch.testing.assert_close(compiled(a, b), twice(a, b))


def test_gradients(kernel, dtype):
    a, b, grad = (random(96, 96, dtype=dtype) for _ in range(3))
    out = kernel.gemm(a.requires_grad_(), b.requires_grad_())
    grad_a, grad_b = torch.autograd.grad(out, (a, b), grad)
    check(grad_a, grad, b.detach().t())
    check(grad_b, a.detach().t(), grad)


def test_opcheck(kernel, dtype):
    op = kernel._ops.ops.gemm.default
    torch.library.opcheck(op, (random(32, 64, dtype=dtype), random(64, 16, dtype=dtype)))


def test_rejects_what_it_cannot_do(kernel):
    half = random(8, 8, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="float32"):
        kernel.gemm(half.float(), half.float())
    with pytest.raises(RuntimeError, match="b"):
        kernel.gemm(half, half.bfloat16())
    with pytest.raises(RuntimeError, match="dimension"):
        kernel.gemm(half, half[:4])
    with pytest.raises(RuntimeError, match="dimension"):
        kernel.gemm(half[0], half)


WITHOUT_CUTILE = """
import sys
sys.modules["cuda.tile"] = None  # importing it fails from here on
import torch
from kernels import get_kernel
x = torch.eye(64, device="cuda", dtype=torch.float16)
print(get_kernel(sys.argv[1], version=1).gemm(x, x).sum().item())
"""


def test_runs_where_cutile_cannot_be_imported():
    command = [sys.executable, "-c", WITHOUT_CUTILE, REPO_ID]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "64.0\n", done.stderr
