"""What the kernels promise, compared with Torch in float64, on the CPU and on a GPU.

To run them on a build that is not on the Hub, say where it lies:
``LOCAL_KERNELS=kbuild-examples/elementwise-tvm-ffi=<folder that holds build/> pytest tests``.
"""

import subprocess
import sys

import pytest
import torch
from kernels import get_kernel

REPO_ID = "kbuild-examples/elementwise-tvm-ffi"
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(), (1,), (3, 7), (0,), (0, 5), (1024,), (100_003,), (2, 3, 255), (17, 1000)]

pytestmark = pytest.mark.kernels_ci


def gpu(test):
    return pytest.mark.gpu(pytest.mark.skipif(not ON_GPU, reason="needs a CUDA GPU")(test))


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1, backend=DEVICE)


@pytest.fixture(scope="module")
def ops(kernel):
    return kernel._ops.ops


@pytest.fixture(scope="module")
def operators(kernel):
    return getattr(torch.ops, kernel._ops.NAMESPACE)


def pair(*shape, dtype=torch.float32):
    return tuple(torch.randn(shape, device=DEVICE).to(dtype) for _ in range(2))


def check_axpy(x, y, alpha, out):
    assert type(out) is torch.Tensor
    assert out.dtype == torch.float32
    expected = x.double() + alpha * y.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)


def check_swiglu(gate, x, out):
    assert out.dtype == gate.dtype
    expected = torch.nn.functional.silu(gate.double()) * x.double()
    tolerance = max(4 * torch.finfo(gate.dtype).eps, 2e-6)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(kernel, shape):
    x, y = pair(*shape)
    check_axpy(x, y, 0.5, kernel.axpy(x, y, alpha=0.5))
    check_axpy(x, y, 1.0, kernel.axpy(x, y))
    check_axpy(x, y, 3, kernel.axpy(x, y, alpha=3))


def test_random_shapes(kernel):
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        size = int(2 ** (torch.rand((), generator=generator) * 20))
        x, y = pair(size)
        check_axpy(x, y, -2.0, kernel.axpy(x, y, alpha=-2.0))


def test_given_results(kernel, ops):
    x, y = pair(33, 65)
    out = torch.empty_like(x)
    assert kernel.axpy(x, y, alpha=0.5, out=out) is out
    check_axpy(x, y, 0.5, out)
    expected = x.double() + y.double()
    ops.axpy(x, y, out=x)
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=1e-6)


def test_a_call_has_the_names_of_the_schema(ops):
    x, y = pair(5)
    check_axpy(x, y, 2.0, ops.axpy(y=y, x=x, alpha=2.0))
    with pytest.raises(TypeError, match="beta"):
        ops.axpy(x, y, beta=2.0)
    with pytest.raises(TypeError, match="positional"):
        ops.axpy(x, y, 2.0)


def test_operators(kernel, operators):
    x, y = pair(4, 6)
    torch.library.opcheck(operators.axpy.default, (x, y), {"alpha": 2.0})
    compiled = torch.compile(
        lambda x, y: kernel.axpy(kernel.axpy(x, y) * 2, y, alpha=0.5),
        fullgraph=True,
        backend="aot_eager",
    )
    torch.testing.assert_close(compiled(x, y), (x + y) * 2 + 0.5 * y)
    x, y = pair(4, 8)  # rows at multiples of 16 bytes
    torch.testing.assert_close(torch.vmap(kernel.axpy)(x, y), x + y)
    operators._kbuild_preload()


def test_gradients_are_not_lost_in_silence(kernel):
    x, y = pair(4)
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        kernel.axpy(x.requires_grad_(), y).sum().backward()
    with torch.no_grad():
        assert not kernel.axpy(x, y).requires_grad


def test_tensors_without_data(kernel, ops):
    """They give tensors without data, as Torch's own operators do, or an error; never a crash."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4, 3, device=DEVICE)
    assert kernel.axpy(fake, fake).shape == (4, 3)
    assert kernel.axpy(*(2 * [torch.empty(4, device="meta")])).is_meta
    x, y = pair(4, 3)
    with pytest.raises(TypeError, match="no data"):
        ops.axpy(x, y, out=fake)
    with pytest.raises(Exception, match="FakeTensor"):
        ops.axpy(fake, y)


def test_what_does_not_fit(kernel, ops):
    x, y = pair(4, 6)
    with pytest.raises(RuntimeError, match="same shape"):
        kernel.axpy(x, y[:2])
    with pytest.raises(RuntimeError, match="it takes float32"):
        kernel.axpy(x.double(), y.double())
    with pytest.raises(RuntimeError, match="contiguous"):
        kernel.axpy(x.t(), y.t())
    with pytest.raises(RuntimeError, match="shape"):
        kernel.axpy(x, y, out=torch.empty(3, device=DEVICE))
    with pytest.raises(TypeError, match="`alpha` must be a float"):
        kernel.axpy(x, y, alpha="much")
    with pytest.raises(TypeError, match="`x` must be a tensor, but it is None"):
        ops.axpy(None, y)


def test_numpy(kernel, ops):
    numpy = pytest.importorskip("numpy", minversion="2.0")
    x, y = (one.cpu().numpy() for one in pair(3, 5))
    if ON_GPU:
        with pytest.raises(RuntimeError, match="is on the CPU"):
            kernel.axpy(x, y)
        return
    out = kernel.axpy(x, y, alpha=0.5)
    assert type(out) is numpy.ndarray
    numpy.testing.assert_allclose(out, x + 0.5 * y, rtol=1e-6, atol=1e-6)
    assert ops.axpy(x, y, out=x) is x
    with pytest.raises(RuntimeError, match="contiguous"):
        kernel.axpy(x.T, y.T)


def test_jax(kernel, ops):
    # Optional: JAX is 400 MB that nothing else here needs.
    jax = pytest.importorskip("jax", reason="pip install jax jax-tvm-ffi")
    pytest.importorskip("jax_tvm_ffi", reason="pip install jax-tvm-ffi")
    if jax.default_backend() != ("gpu" if ON_GPU else "cpu"):
        pytest.skip("this JAX has its arrays elsewhere")
    x, y = (jax.numpy.asarray(one.cpu().numpy()) for one in pair(3, 5))
    for ours in (kernel.axpy(x, y, alpha=1.0), jax.jit(kernel.axpy)(x, y)):
        assert jax.numpy.allclose(ours, x + y, atol=1e-6)
    assert jax.numpy.allclose(jax.vmap(kernel.axpy)(x, y), x + y, atol=1e-6)
    with pytest.raises(TypeError, match="jax_ffi_call"):
        ops.axpy(x, y)
    with pytest.raises(TypeError, match="it has no beta"):
        kernel._ops.jax_ffi_call("axpy", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y, beta=1)


@pytest.mark.skipif(ON_GPU, reason="there is code for GPUs")
def test_what_a_cpu_lacks(kernel):
    with pytest.raises(RuntimeError, match="this build is for CPUs"):
        kernel.swiglu(*pair(3))


def test_no_compiler_is_needed():
    code = f"""
import sys
for name in ("tilelang", "tvm", "cutlass", "nvidia_cutlass_dsl"):
    sys.modules[name] = None
import torch
from kernels import get_kernel
kernel = get_kernel({REPO_ID!r}, version=1, backend={DEVICE!r})
x = torch.ones(4096, device={DEVICE!r})
assert (kernel.axpy(x, x) == 2).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_swiglu(kernel, shape, dtype):
    gate, x = pair(*shape, dtype=dtype)
    check_swiglu(gate, x, kernel.swiglu(gate, x))


@gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("begin", [1, 3, 8])
def test_swiglu_unaligned(kernel, begin, dtype):
    gate, x = pair(4099 + begin, dtype=dtype)
    check_swiglu(gate[begin:], x[begin:], kernel.swiglu(gate[begin:], x[begin:]))


@gpu
def test_streams(kernel):
    x, y = pair(1 << 20)
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)]:
        with torch.cuda.stream(stream):
            results.append((kernel.axpy(x, y), kernel.swiglu(x, y)))
    torch.cuda.synchronize()
    for total, gated in results:
        check_axpy(x, y, 1.0, total)
        check_swiglu(x, y, gated)


@gpu
def test_the_current_stream_is_used(kernel):
    """The input is ready only after a wait on this very stream."""
    x = torch.full((1 << 20,), -1.0, device=DEVICE)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(1.0)
        out = kernel.axpy(x, x)
    stream.synchronize()
    assert (out == 2.0).all()


@gpu
def test_a_graph_records_them(kernel):
    x, y = pair(1 << 16)
    kernel.axpy(x, y), kernel.swiglu(x, y)  # loads the code
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total, gated = kernel.axpy(x, y, alpha=0.5), kernel.swiglu(x, y)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    check_axpy(x, y, 0.5, total)
    check_swiglu(x, y, gated)


@gpu
def test_arrays_elsewhere(kernel):
    x, y = (one.cpu() for one in pair(16))
    for call in (kernel.axpy, kernel.swiglu):
        with pytest.raises(RuntimeError, match="is on the CPU"):
            call(x, y)


@gpu
def test_swiglu_compiles_and_refuses(kernel, operators):
    gate, x = pair(10, 10, dtype=torch.float16)
    torch.library.opcheck(operators.swiglu.default, (gate, x))
    with pytest.raises(RuntimeError, match="float64"):
        kernel.swiglu(gate.double(), x.double())
    with pytest.raises(RuntimeError):
        kernel.swiglu(gate, x.float())
