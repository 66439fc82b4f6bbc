"""What the kernel promises: the values and the behaviour of ``torch.relu``, for every caller.

The tests load the kernel as its users do. To run them on a build that is not on the Hub, say where
it lies: ``LOCAL_KERNELS=kbuild-examples/relu=<folder that holds build/> pytest tests``.
"""

import pytest
import torch
from kernels import get_kernel
from torch import nn

pytestmark = pytest.mark.kernels_ci

REPO_ID = "kbuild-examples/relu"
SHAPES = [(1,), (7,), (16,), (3, 5), (64, 1023), (2, 3, 4, 5), (300_001,), ()]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]

ACCELERATOR = torch.accelerator.current_accelerator(check_available=True)
DEVICE = ACCELERATOR or torch.device("cpu")
BACKEND = None if ACCELERATOR else "cpu"  # None: what Torch is built for


@pytest.fixture(scope="module")
def relu():
    return get_kernel(REPO_ID, version=1, backend=BACKEND)


@pytest.fixture(scope="module")
def ops(relu):
    """The operators under their unique namespace."""
    return relu._ops.ops


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    if DEVICE.type == "mps" and request.param is torch.float64:
        pytest.skip("Metal has no float64")
    return request.param


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float32).to(device=DEVICE, dtype=dtype)


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(relu, shape, dtype):
    x = random(*shape, dtype=dtype)
    check(relu.relu(x), torch.relu(x))


def test_extreme_values(relu, dtype):
    inf, nan, tiny = float("inf"), float("nan"), torch.finfo(dtype).smallest_normal
    values = [inf, -inf, nan, -nan, 0.0, -0.0, tiny, -tiny, tiny / 2, -tiny / 2, 1.0, -1.0]
    x = torch.tensor(values * 3, dtype=dtype, device=DEVICE)
    check(relu.relu(x), torch.relu(x))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[1:, 3:],
        lambda x: x[0].expand(4, -1),
        lambda x: x.reshape(2, 3, 4, -1).to(memory_format=torch.channels_last),
        lambda x: x.flatten()[1:],
    ],
    ids=["transposed", "strided", "sliced", "expanded", "channels_last", "unaligned"],
)
def test_layouts(relu, view, dtype):
    x = view(random(24, 31 * 3, dtype=dtype))
    out = relu.relu(x)
    check(out, torch.relu(x))
    assert out.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)], ids=str)
def test_empty(relu, shape, dtype):
    x = random(*shape, dtype=dtype).requires_grad_()
    out = relu.relu(x)
    out.sum().backward()
    assert out.shape == x.grad.shape == x.shape


def test_out(relu, dtype):
    x = random(33, 65, dtype=dtype)
    out = torch.empty_like(x)
    assert relu.relu(x, out=out) is out
    check(out, torch.relu(x))


def test_out_with_another_layout(relu):
    x = random(33, 65)
    out = torch.empty(65, 33, device=DEVICE).t()
    check(relu.relu(x, out=out), torch.relu(x))


def test_in_place(relu, dtype):
    x = random(70_001, dtype=dtype)
    expected = torch.relu(x)
    check(relu.relu(x, out=x), expected)


def test_more_elements_than_one_pass_of_the_grid(relu):
    x = random(3, 2_000_003)[:, 1:]
    check(relu.relu(x), torch.relu(x))


def test_backward(relu, dtype):
    x = random(33, 65, dtype=dtype)
    grad = random(65, 33, dtype=dtype).t()
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    relu.relu(ours).backward(grad)
    torch.relu(theirs).backward(grad)
    check(ours.grad, theirs.grad)


def test_backward_at_zero_and_nan(relu, dtype):
    values = [0.0, -0.0, float("nan"), -float("nan"), float("inf"), -float("inf")]
    x = torch.tensor(values * 3, dtype=dtype, device=DEVICE, requires_grad=True)
    grad = torch.ones_like(x)
    (ours,) = torch.autograd.grad(relu.relu(x), x, grad)
    (theirs,) = torch.autograd.grad(torch.relu(x), x, grad)
    check(ours, theirs)


@pytest.mark.skipif(DEVICE.type == "mps", reason="Metal has no float64")
def test_first_and_second_gradients(relu):
    x = random(5, 7, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(relu.relu, x)
    assert torch.autograd.gradgradcheck(relu.relu, x)


def test_compile(relu, dtype):
    def twice(x):
        return relu.relu(relu.relu(x) - 0.5) * 2

    x = random(33, 65, dtype=dtype)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager")
    out, expected = compiled(ours), twice(theirs)
    out.sum().backward()
    expected.sum().backward()
    check(out, expected)
    check(ours.grad, theirs.grad)


def test_compile_with_out(relu):
    def into(x, out):
        relu.relu(x, out=out)
        return out + 1

    x = random(33, 65)
    compiled = torch.compile(into, fullgraph=True, backend="aot_eager")
    check(compiled(x, torch.empty_like(x)), torch.relu(x) + 1)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_opcheck(ops, layout):
    x = random(4, 6) if layout == "contiguous" else random(4, 12)[:, ::2]
    x.requires_grad_()
    torch.library.opcheck(ops.relu.default, (x,))
    torch.library.opcheck(ops.relu_backward.default, (random(4, 6).requires_grad_(), x))
    torch.library.opcheck(ops.relu_out.default, (x.detach(), random(4, 6)))


def test_layer(relu):
    x = random(33, 65)
    check(relu.layers.ReLU()(x), nn.ReLU()(x))


def test_rejects_what_it_cannot_do(relu):
    x = random(4, 4)
    with pytest.raises(RuntimeError, match="unsupported dtype"):
        relu.relu(x.to(torch.int32))
    with pytest.raises(RuntimeError, match="shape of x"):
        relu.relu(x, out=random(4, 5))
    with pytest.raises(RuntimeError, match="dtype of x"):
        relu.relu(x, out=random(4, 4, dtype=torch.float16))
