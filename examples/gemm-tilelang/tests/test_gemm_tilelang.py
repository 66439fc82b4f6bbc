"""What the kernel promises, compared with Torch in double precision.

``LOCAL_KERNELS=kbuild-examples/gemm-tilelang=<folder that holds build/> pytest tests`` runs the
tests on a build that is not on the Hub.
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

REPO_ID = "kbuild-examples/gemm-tilelang"
DTYPES = [torch.float16, torch.bfloat16]
SHAPES = [(1, 8, 8), (3, 16, 24), (16, 64, 32), (128, 128, 128), (100, 200, 304), (64, 4096, 4096)]
SHAPES += [(129, 256, 72), (1000, 1000, 1000), (1024, 512, 2048), (2048, 2048, 64), (8, 8, 20_000)]
SHAPES += [(300, 4096, 4096), (3000, 3000, 1000), (257, 8192, 8192)]
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
    for _ in range(40):
        m, n, k = (int(2 ** (torch.rand((), generator=generator) * 11.5)) for _ in range(3))
        n, k = -(-n // 8) * 8, -(-k // 8) * 8
        a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
        check(kernel.gemm(a, b), a, b)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, 8:][:, :-8],
        lambda x: x[:, ::2],
        lambda x: x[0].expand(96, -1),
        lambda x: x.flatten()[1:][: 64 * 64].view(64, 64),
    ],
    ids=["transposed", "slice", "columns", "expanded", "unaligned"],
)
def test_layouts(kernel, view, dtype):
    a = view(random(96, 192, dtype=dtype))
    b = random(a.shape[1], 128, dtype=dtype)
    check(kernel.gemm(a, b), a, b)


@pytest.mark.parametrize("shape", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)], ids=str)
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


def test_a_producer_that_is_not_done(kernel, dtype):
    a, b = random(2048, 2048, dtype=dtype), random(2048, 2048, dtype=dtype)
    for _ in range(20):
        torch.cuda._sleep(200_000)
        product = kernel.gemm(kernel.gemm(a, b), b)
    expected = ((a.double() @ b.double()).to(dtype).double() @ b.double()).float()
    error = (product.float() - expected).abs().max() / expected.abs().max()
    assert error < 4 * torch.finfo(dtype).eps


def test_graph(kernel, dtype):
    a, b = random(512, 512, dtype=dtype), random(512, 512, dtype=dtype)
    kernel.gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.gemm(a, b)
    a.copy_(random(512, 512, dtype=dtype))
    graph.replay()
    torch.cuda.synchronize()
    check(out, a, b)


@pytest.mark.skipif(len(DEVICES) < 2, reason="needs two GPUs")
def test_devices(kernel, dtype):
    for device in reversed(DEVICES):
        a, b = (random(256, 256, dtype=dtype, device=device) for _ in range(2))
        check(kernel.gemm(a, b), a, b)
    with pytest.raises(RuntimeError, match="device"):
        kernel.gemm(random(8, 8, dtype=dtype), random(8, 8, dtype=dtype, device="cuda:1"))


def test_gradients(kernel):
    a = random(32, 64, dtype=torch.float16).requires_grad_()
    b = random(64, 40, dtype=torch.float16).requires_grad_()
    kernel.gemm(a, b).sum().backward()
    ones = torch.ones(32, 40, dtype=torch.float64, device="cuda")
    torch.testing.assert_close(a.grad.double(), ones @ b.double().t(), rtol=1e-3, atol=2e-2)
    torch.testing.assert_close(b.grad.double(), a.double().t() @ ones, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((4, 12), (12, 8), "K % 8"),
        ((4, 8), (8, 12), "N % 8"),
        ((4, 8), (16, 8), "must be"),
    ],
    ids=str,
)
def test_refusals(kernel, a, b, words, dtype):
    with pytest.raises(RuntimeError, match=words):
        kernel.gemm(random(*a, dtype=dtype), random(*b, dtype=dtype))


def test_other_dtypes_and_devices(kernel):
    with pytest.raises(RuntimeError, match="float32"):
        kernel.gemm(random(8, 8, dtype=torch.float32), random(8, 8, dtype=torch.float32))


def test_no_dsl_is_imported(kernel):
    names = ("tilelang", "tvm", "tvm_ffi")
    code = f"import sys; sys.modules.update(dict.fromkeys({names!r}))\n"
    code += (
        f"import torch; from kernels import get_kernel; k = get_kernel({REPO_ID!r}, version=1)\n"
    )
    code += "x = torch.ones(64, 64, device='cuda', dtype=torch.float16)\n"
    code += "assert (k.gemm(x, x) == 64).all()"
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
