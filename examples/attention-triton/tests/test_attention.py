"""What the kernels promise, compared with Torch in double precision.

``LOCAL_KERNELS=kbuild-examples/attention-triton=<folder that holds build/> pytest tests`` runs the
tests on a build that is not on the Hub.
"""

import random
import subprocess
import sys

import pytest
import torch
from kernels import get_kernel

pytestmark = [
    pytest.mark.kernels_ci,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

REPO_ID = "kbuild-examples/attention-triton"
DTYPES = [torch.float16, torch.bfloat16]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.2e-2, torch.float32: 2e-6}


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


def tensor(*shape, dtype, layout="contiguous"):
    """Random values: contiguous, with heads before rows in memory, or a part of longer rows."""
    options = {"dtype": dtype, "device": "cuda"}
    if layout == "heads first":
        return torch.randn(*shape[:-3], shape[-2], shape[-3], shape[-1], **options).transpose(
            -3, -2
        )
    if layout == "sliced":
        return torch.randn(*shape[:-1], shape[-1] + 24, **options)[..., 8:-16]
    if layout == "unaligned":
        return torch.randn(*shape[:-1], shape[-1] + 3, **options)[..., 1:-2]
    return torch.randn(shape, **options)


def expected_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def expected(q, k, v, causal=False, scale=None):
    group = q.shape[-2] // k.shape[-2]
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, -3) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(-3, -2)


def expected_varlen(tensors, lengths, causal=False):
    parts = zip(*(x.split(lengths) for x in tensors), strict=True)
    return torch.cat([expected(*part, causal) for part in parts])


def bounds(lengths):
    return torch.tensor([0, *lengths], device="cuda").cumsum(0).int()


def check(function, reference, *tensors):
    """Results and gradients, by the norm of their errors."""
    own = [x.detach().requires_grad_() for x in tensors]
    wide = [x.detach().double().requires_grad_() for x in tensors]
    out, theirs = function(*own), reference(*wide)
    assert (out.shape, out.dtype) == (tensors[0].shape, tensors[0].dtype)
    grad = torch.randn_like(theirs).to(out.dtype)
    results = [out, *torch.autograd.grad(out, own, grad)]
    references = [theirs, *torch.autograd.grad(theirs, wide, grad.double())]
    for ours, wanted in zip(results, references, strict=True):
        error = (ours.double() - wanted).norm()
        assert error <= TOLERANCE[out.dtype] * (wanted.norm() + 0.1 * wanted.numel() ** 0.5)


@pytest.mark.parametrize("shape", [(1, 16), (3, 100), (7, 5, 255), (2, 3, 4, 4096), (300, 8192)])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
def test_rms_norm(kernel, shape, dtype):
    x, weight = tensor(*shape, dtype=dtype), tensor(shape[-1], dtype=dtype)
    check(
        lambda x, w: kernel.rms_norm(x, w, 1e-5), lambda x, w: expected_norm(x, w, 1e-5), x, weight
    )


@pytest.mark.parametrize("layout", ["sliced", "unaligned"])
def test_rms_norm_of_a_view(kernel, layout, dtype):
    x, weight = tensor(9, 640, dtype=dtype, layout=layout), tensor(640, dtype=dtype)
    check(kernel.rms_norm, expected_norm, x, weight)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("heads", [(1, 1, 64), (6, 2, 128), (4, 4, 64), (16, 1, 128)], ids=str)
@pytest.mark.parametrize("rows", [1, 15, 64, 129, 500])
def test_attention(kernel, rows, heads, causal, dtype):
    count, kv_count, dim = heads
    q = tensor(2, rows, count, dim, dtype=dtype)
    k, v = (tensor(2, rows, kv_count, dim, dtype=dtype) for _ in range(2))
    check(
        lambda q, k, v: kernel.attention(q, k, v, causal),
        lambda q, k, v: expected(q, k, v, causal),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("rows", [1000, 4097, 10_000])
def test_long_attention(kernel, rows, dim, causal, dtype):
    tensors = [tensor(1, rows, 1, dim, dtype=dtype) for _ in range(3)]
    check(
        lambda q, k, v: kernel.attention(q, k, v, causal),
        lambda q, k, v: expected(q, k, v, causal),
        *tensors,
    )


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("layout", ["heads first", "sliced", "unaligned"])
def test_strided_attention(kernel, layout, dim, dtype):
    q = tensor(2, 140, 8, dim, dtype=dtype, layout=layout)
    k = tensor(2, 140, 2, dim, dtype=dtype, layout=layout)
    v = tensor(2, 140, 2, dim, dtype=dtype)
    check(
        lambda q, k, v: kernel.attention(q, k, v, True, 0.3),
        lambda q, k, v: expected(q, k, v, True, 0.3),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("seed", range(12))
def test_attention_varlen(kernel, seed, causal, dtype):
    draw = random.Random(seed)  # noqa: S311 - draws cases
    lengths = [draw.choice([0, 1, draw.randint(2, 700)]) for _ in range(draw.randint(1, 9))]
    lengths.append(draw.randint(1, 300))
    kv_heads, dim = draw.choice([1, 2, 3]), draw.choice([64, 128])
    heads, layout = kv_heads * draw.choice([1, 2, 4]), draw.choice(["contiguous", "sliced"])
    q = tensor(sum(lengths), heads, dim, dtype=dtype, layout=layout)
    k, v = (tensor(sum(lengths), kv_heads, dim, dtype=dtype, layout=layout) for _ in range(2))
    longest = max(lengths) + draw.choice([0, 50])
    check(
        lambda q, k, v: kernel.attention_varlen(q, k, v, bounds(lengths), longest, causal),
        lambda *tensors: expected_varlen(tensors, lengths, causal),
        q, k, v,
    )  # fmt: skip


def test_all_sequences_but_one_are_empty(kernel, dtype):
    lengths = [0, 0, 33, 0]
    q, k, v = (tensor(33, 4, 64, dtype=dtype) for _ in range(3))
    check(
        lambda q, k, v: kernel.attention_varlen(q, k, v, bounds(lengths), 33),
        lambda *tensors: expected_varlen(tensors, lengths),
        q, k, v,
    )  # fmt: skip


@pytest.mark.parametrize("dim", [64, 128])
def test_sequences_do_not_see_each_other(kernel, dim, dtype):
    q, k, v = (tensor(300, 2, dim, dtype=dtype) for _ in range(3))
    arguments = (bounds([70, 160, 70]), 160)
    alone = kernel.attention_varlen(q, k, v, *arguments)[70:230]
    for x in (q, k, v):
        x[:70], x[230:] = float("nan"), float("inf")
    assert torch.equal(kernel.attention_varlen(q, k, v, *arguments)[70:230], alone)


@pytest.mark.parametrize("dim", [64, 128])
def test_scores_far_below_zero(kernel, dim, dtype):
    """What lies beyond the last row has a score of 0, and must not count."""
    q, k, v = (tensor(1, 5, 2, dim, dtype=dtype).requires_grad_() for _ in range(3))
    out = kernel.attention(q + 4, k - 4, v)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(x.isfinite().all() for x in (out, *grads))


def test_a_gradient_without_strides(kernel, dtype):
    q, k, v = (tensor(1, 70, 2, 64, dtype=dtype).requires_grad_() for _ in range(3))
    ours = torch.autograd.grad(kernel.attention(q, k, v).sum(), (q, k, v))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    theirs = torch.autograd.grad(expected(*wide).sum(), wide)
    for result, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(result.double(), reference, rtol=2e-2, atol=2e-2)


def test_refuses_what_it_cannot_do(kernel):
    q, k = tensor(1, 8, 4, 64, dtype=torch.float16), tensor(1, 8, 3, 64, dtype=torch.float16)
    with pytest.raises(RuntimeError):
        kernel.attention(q, k, k)  # 4 heads cannot share 3
    with pytest.raises(RuntimeError):
        kernel.attention(q.float(), q.float(), q.float())
    with pytest.raises(RuntimeError):
        kernel.attention(*[tensor(1, 8, 4, 96, dtype=torch.float16)] * 3)
    with pytest.raises(RuntimeError):
        kernel.attention(*[tensor(1, 8, 64, 4, dtype=torch.float16).mT] * 3)
    with pytest.raises(RuntimeError):
        kernel.rms_norm(*(tensor(*s, dtype=torch.float16) for s in ((2, 9000), (9000,))))


def test_compile(kernel, dtype):
    def layer(x, weight):
        q = kernel.rms_norm(x, weight)
        return kernel.attention(q * 2, q, x, True).sin()

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 65):
        x, weight = tensor(2, rows, 4, 64, dtype=dtype), tensor(64, dtype=dtype)
        x.requires_grad_()
        ours, theirs = compiled(x, weight), layer(x, weight)
        torch.testing.assert_close(ours, theirs)
        grads = [torch.autograd.grad(out.sum(), x)[0] for out in (ours, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-2)


def test_compile_varlen(kernel, dtype):
    compiled = torch.compile(kernel.attention_varlen, fullgraph=True, backend="aot_eager")
    for lengths in ([5, 40], [1, 0, 90]):
        q, k, v = (tensor(sum(lengths), 2, 64, dtype=dtype) for _ in range(3))
        arguments = (q, k, v, bounds(lengths), max(lengths), True)
        torch.testing.assert_close(compiled(*arguments), kernel.attention_varlen(*arguments))


def test_opcheck(kernel, dtype):
    ops = kernel._ops.ops
    q, k, v = (tensor(2, 33, 2, 64, dtype=dtype).requires_grad_() for _ in range(3))
    x, weight = (
        tensor(3, 64, dtype=dtype).requires_grad_(),
        tensor(64, dtype=dtype).requires_grad_(),
    )
    packed = [tensor(33, 2, 64, dtype=dtype).requires_grad_() for _ in range(3)]
    calls = [
        (ops.rms_norm.default, (x, weight, 1e-6)),
        (ops.attention.default, (q, k, v, True, 0.125)),
        (ops.attention_varlen.default, (*packed, bounds([3, 30]), 30, False, 0.125)),
    ]
    for op, arguments in calls:
        torch.library.opcheck(op, arguments)


def test_graph(kernel, dtype):
    q, k, v = (tensor(2, 200, 4, 128, dtype=dtype) for _ in range(3))
    kernel.attention(q, k, v, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.attention(q, k, v, True)
    q.copy_(tensor(2, 200, 4, 128, dtype=dtype))
    graph.replay()
    torch.testing.assert_close(out, kernel.attention(q, k, v, True))


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # importing it fails from here on
import torch
from kernels import get_kernel
q = torch.ones(1, 16, 2, 64, device="cuda", dtype=torch.float16)
out = get_kernel(sys.argv[1], version=1).attention(q, q, q, True)
print(out.sum().item())
"""


def test_runs_where_triton_cannot_be_imported():
    command = [sys.executable, "-c", WITHOUT_TRITON, REPO_ID]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2048.0\n", done.stderr
