"""What the kernel promises, compared with Torch in double precision.

``LOCAL_KERNELS=kbuild-examples/rmsnorm-triton=<folder that holds build/> pytest tests`` runs the
tests on a build that is not on the Hub.
"""

import subprocess
import sys
import threading

import pytest
import torch
from kernels import get_kernel

pytestmark = [
    pytest.mark.kernels_ci,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

REPO_ID = "kbuild-examples/rmsnorm-triton"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
SHAPES = [(1, 1), (3, 7), (5, 100), (2, 3, 255), (9, 256), (17, 1000), (4, 1024), (33, 4096)]
SHAPES += [(3, 5000), (3, 8192), (2, 8193), (2, 20_000), (1, 65_536), (1, 100_003), (70_001, 64)]
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 2e-6}
DEVICES = [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


def random(*shape, dtype, device="cuda"):
    return torch.randn(shape, dtype=torch.float32, device=device).to(dtype)


def expected(x, weight, eps=1e-6):
    wide = x.double()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide * scale * weight.double()


def check(out, x, weight, eps=1e-6):
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    assert out.device == x.device
    tolerance = TOLERANCE[x.dtype]
    torch.testing.assert_close(out.double(), expected(x, weight, eps), rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(kernel, shape, dtype):
    x, weight = random(*shape, dtype=dtype), random(shape[-1], dtype=dtype)
    check(kernel.rmsnorm(x, weight), x, weight)


def test_random_shapes(kernel, dtype):
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        rows = int(torch.randint(1, 400, (), generator=generator))
        length = int(2 ** (torch.rand((), generator=generator) * 14.5))
        x, weight = random(rows, length, dtype=dtype), random(length, dtype=dtype)
        check(kernel.rmsnorm(x, weight), x, weight)


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.5])
def test_eps(kernel, eps, dtype):
    x, weight = random(8, 512, dtype=dtype), random(512, dtype=dtype)
    check(kernel.rmsnorm(x, weight, eps), x, weight, eps)


@pytest.mark.parametrize("offset", [1, 3, 8])
def test_unaligned(kernel, offset, dtype):
    x = random(16 * 1024 + offset, dtype=dtype)[offset:].view(16, 1024)
    weight = random(1024 + offset, dtype=dtype)[offset:]
    assert x.is_contiguous()
    check(kernel.rmsnorm(x, weight), x, weight)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 3:], lambda x: x[0].expand(4, -1)],
    ids=["transposed", "strided", "sliced", "expanded"],
)
def test_strided(kernel, view, dtype):
    x = view(random(64, 96, dtype=dtype))
    weight = random(x.shape[-1], dtype=dtype)
    check(kernel.rmsnorm(x, weight), x, weight)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (3, 0)], ids=str)
def test_empty(kernel, shape, dtype):
    x, weight = random(*shape, dtype=dtype), random(shape[-1], dtype=dtype)
    out = kernel.rmsnorm(x, weight)
    assert out.shape == x.shape


def test_several_streams(kernel, dtype):
    inputs = [random(512, 2048, dtype=dtype) for _ in range(8)]
    weight = random(2048, dtype=dtype)
    torch.cuda.synchronize()
    outputs = []
    for x in inputs:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(1_000_000)
            outputs.append(kernel.rmsnorm(x * 1, weight))
    torch.cuda.synchronize()
    for out, x in zip(outputs, inputs, strict=True):
        check(out, x, weight)


def test_threads(kernel, dtype):
    x, weight = random(64, 640, dtype=dtype), random(640, dtype=dtype)
    torch.cuda.synchronize()
    outputs = [None] * 16

    def work(index):
        for _ in range(20):
            outputs[index] = kernel.rmsnorm(x, weight)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outputs:
        check(out, x, weight)


@pytest.mark.skipif(len(DEVICES) < 2, reason="needs two GPUs")
def test_devices(kernel, dtype):
    for device in reversed(DEVICES):
        x, weight = (random(*s, dtype=dtype, device=device) for s in ((8, 512), (512,)))
        check(kernel.rmsnorm(x, weight), x, weight)
    assert torch.cuda.current_device() == 0


def test_graph(kernel, dtype):
    x, weight = random(128, 4096, dtype=dtype), random(4096, dtype=dtype)
    kernel.rmsnorm(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.rmsnorm(x, weight)
    x.copy_(random(128, 4096, dtype=dtype))
    graph.replay()
    check(out, x, weight)


def test_compile(kernel, dtype):
    def twice(x, weight):
        return kernel.rmsnorm(kernel.rmsnorm(x, weight) + 1, weight)

    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 8, 11):
        x, weight = random(rows, 512, dtype=dtype), random(512, dtype=dtype)
        torch.testing.assert_close(compiled(x, weight), twice(x, weight))


def test_gradients(kernel):
    x, weight = (random(*shape, dtype=torch.float32).requires_grad_() for shape in ((6, 40), (40,)))
    grad = random(6, 40, dtype=torch.float32)
    ours = torch.autograd.grad(kernel.rmsnorm(x, weight), (x, weight), grad)
    theirs = torch.autograd.grad(expected(x, weight), (x, weight), grad.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_opcheck(kernel, dtype):
    op = kernel._ops.ops.rmsnorm.default
    torch.library.opcheck(op, (random(4, 64, dtype=dtype), random(64, dtype=dtype), 1e-6))


def test_rejects_what_it_cannot_do(kernel):
    ops = kernel._ops.ops
    x, weight = random(4, 64, dtype=torch.float32), random(64, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="float64"):
        ops.rmsnorm(x.double(), weight.double())
    with pytest.raises(RuntimeError, match="contiguous"):
        ops.rmsnorm(x.t(), random(4, dtype=torch.float32))
    with pytest.raises(RuntimeError, match="weight"):
        ops.rmsnorm(x, weight[:-1])
    with pytest.raises(RuntimeError, match="weight"):
        ops.rmsnorm(x, weight.half())


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # importing it fails from here on
import torch
from kernels import get_kernel
x = torch.ones(4, 64, device="cuda", dtype=torch.float16)
out = get_kernel(sys.argv[1], version=1).rmsnorm(x, x[0], 0.0)
print(out.sum().item())
"""


def test_runs_where_triton_cannot_be_imported():
    command = [sys.executable, "-c", WITHOUT_TRITON, REPO_ID]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "256.0\n", done.stderr
