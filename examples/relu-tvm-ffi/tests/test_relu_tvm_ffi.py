"""The tests load the kernel as its users do.

To run them on a build that is not on the Hub, say where it lies:
``LOCAL_KERNELS=kbuild-examples/relu-tvm-ffi=<folder that holds build/> pytest tests``.
"""

import pytest
import torch
from kernels import get_kernel
from torch import nn

pytestmark = pytest.mark.kernels_ci

REPO_ID = "kbuild-examples/relu-tvm-ffi"
SHAPES = [(), (1,), (7,), (33, 65), (2, 3, 5, 7), (100_003,)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]

ACCELERATOR = torch.accelerator.current_accelerator(check_available=True)
DEVICE = ACCELERATOR or torch.device("cpu")
BACKEND = None if ACCELERATOR else "cpu"  # None: what Torch is built for

on_cpu = pytest.mark.skipif(DEVICE.type != "cpu", reason="these arrays are on the CPU")
on_cuda = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA GPU")


@pytest.fixture(scope="module")
def relu():
    return get_kernel(REPO_ID, version=1, backend=BACKEND)


@pytest.fixture(scope="module")
def ops(relu):
    return relu._ops.ops


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request):
    return request.param


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape).to(DEVICE, dtype)


def check(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(relu, shape, dtype):
    x = random(*shape, dtype=dtype)
    check(relu.relu(x), torch.relu(x))


def test_special_values(relu, dtype):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, -nan, inf, -inf, 0.0, -0.0, 1.0, -1.0] * 3, dtype=dtype, device=DEVICE)
    check(relu.relu(x), torch.relu(x))


@pytest.mark.parametrize(
    "view",
    [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[0].expand(4, -1), lambda x: x.flatten()[1:]],
    ids=["transposed", "strided", "expanded", "unaligned"],
)
def test_layouts(relu, view):
    x = view(random(24, 93))
    check(relu.relu(x), torch.relu(x))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)], ids=str)
def test_empty(relu, shape):
    x = random(*shape)
    assert relu.relu(x).shape == x.shape


def test_out_and_in_place(relu, ops):
    x = random(33, 65)
    out, expected = torch.empty_like(x), torch.relu(x)
    assert relu.relu(x, out=out) is out
    check(out, expected)
    ops.relu(x, x)
    check(x, expected)


def test_gradients(relu):
    x = random(5, 7, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(relu.relu, x)
    assert torch.autograd.gradgradcheck(relu.relu, x)


def test_compile(relu):
    def twice(x):
        return relu.relu(relu.relu(x) - 0.5) * 2

    x = random(33, 65)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    out = torch.compile(twice, fullgraph=True, backend="aot_eager")(ours)
    expected = twice(theirs)
    out.sum().backward()
    expected.sum().backward()
    check(out, expected)
    check(ours.grad, theirs.grad)


def test_opcheck(relu):
    operators = getattr(torch.ops, relu._ops.NAMESPACE)
    x = random(4, 6).requires_grad_()
    torch.library.opcheck(operators.relu.default, (x,))
    torch.library.opcheck(operators.relu_backward.default, (random(4, 6).requires_grad_(), x))
    torch.library.opcheck(operators.relu_out.default, (x.detach(), random(4, 6)))


def test_layer(relu):
    x = random(33, 65)
    check(relu.layers.ReLU()(x), nn.ReLU()(x))


def test_rejects_what_it_cannot_do(relu, ops):
    x = random(4, 4)
    with pytest.raises(TypeError, match="unsupported dtype"):
        relu.relu(x.to(torch.int32))
    with pytest.raises(ValueError, match="shape of x"):
        relu.relu(x, out=random(4, 5))
    with pytest.raises(TypeError, match="dtype of x"):
        relu.relu(x, out=random(4, 4, dtype=torch.float16))
    with pytest.raises(ValueError, match="contiguous"):
        ops.relu(x.t(), x)


def test_tensors_without_data_are_refused(ops):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4)
    for x in (fake, [fake], {"x": (fake,)}, torch.empty(4, device="meta")):
        with pytest.raises(TypeError, match="no data"):
            ops.relu(x, random(4))
    with pytest.raises(TypeError, match=r"torch\.vmap"):
        torch.vmap(lambda x: ops.relu(x, x))(random(3, 4))


@on_cpu
def test_numpy(relu, ops):
    numpy = pytest.importorskip("numpy", minversion="2.0")
    x = numpy.array([[-1, 2], [numpy.nan, 4]], numpy.float32)
    numpy.testing.assert_array_equal(relu.relu(x), numpy.maximum(x, 0))
    ops.relu(x, x)
    numpy.testing.assert_array_equal(x, numpy.maximum(x, 0))


@on_cpu
def test_jax(relu, ops):
    # Optional: JAX is 400 MB that nothing else here needs.
    jax = pytest.importorskip("jax", reason="pip install jax jax-tvm-ffi")
    pytest.importorskip("jax_tvm_ffi", reason="pip install jax-tvm-ffi")
    x = jax.numpy.array([[-1.0, 2.0], [3.0, -4.0]])
    expected = jax.nn.relu(x)
    for ours in (relu.relu(x), jax.jit(relu.relu)(x), jax.vmap(relu.relu)(x)):
        assert (ours == expected).all()
    with pytest.raises(TypeError, match="traced array of JAX"):
        jax.jit(lambda x: ops.relu(x, x))(x)


@on_cuda
def test_the_current_stream_is_used(ops):
    """The input is ready only after a wait on this very stream."""
    x = torch.full((1 << 20,), -1.0, device=DEVICE)
    out, stream = torch.empty_like(x), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(1.0)
        ops.relu(x, out)
    stream.synchronize()
    check(out, torch.ones_like(out))


@on_cuda
def test_a_graph_records_it(relu, ops):
    x = random(1 << 16)
    out = torch.empty_like(x)
    ops.relu(x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.relu(x, out)
        more = relu.relu(x - 1)
    x.copy_(-random(1 << 16))
    graph.replay()
    torch.cuda.synchronize()
    check(out, torch.relu(x))
    check(more, torch.relu(x - 1))


@on_cuda
def test_arrays_of_another_device_are_refused(ops):
    x = torch.ones(4)
    with pytest.raises(ValueError, match="this build is for kind"):
        ops.relu(x, x)
