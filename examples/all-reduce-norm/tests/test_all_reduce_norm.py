"""The kernel against Torch's all-reduce, add and RMS norm, with one rank and under ``torchrun``.

To run them on a build that is not on the Hub, say where it lies:
``LOCAL_KERNELS=kbuild-examples/all-reduce-norm=<folder that holds build/> pytest tests``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from kernels import get_kernel

pytestmark = pytest.mark.kernels_ci

REPO_ID = "kbuild-examples/all-reduce-norm"
SCRIPT = Path(__file__).with_name("compare_ranks.py")
TIMEOUT = 300  # seconds for all ranks
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
EPS = 1e-5

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def kernel():
    return get_kernel(REPO_ID, version=1, backend=DEVICE.type)


@pytest.fixture(scope="module")
def group():
    """A process group of this process alone."""
    backend = "nccl" if DEVICE.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture(params=TOLERANCES, ids=str)
def dtype(request):
    return request.param


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(device=DEVICE, dtype=dtype)


def reference(partial, residual, weight, eps):
    """What one rank alone computes."""
    total = partial + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, eps), total


def check(outputs, partial, residual, weight, eps=EPS) -> None:
    tolerance = TOLERANCES[partial.dtype]
    normalized, total = reference(partial, residual, weight, eps)
    torch.testing.assert_close(outputs[1], total, rtol=0, atol=0)
    torch.testing.assert_close(outputs[0], normalized, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(4, 512), (2, 3, 1000), (5, 77), (1,), (70_000, 8)], ids=str)
def test_one_rank(kernel, group, shape, dtype):
    inputs = [random(*size, dtype=dtype) for size in (shape, shape, shape[-1:])]
    check(kernel.all_reduce_rms_norm(*inputs, EPS, group), *inputs)


def test_the_group_may_be_left_out_or_a_name(kernel, group):
    inputs = [random(4, 64), random(4, 64), random(64)]
    check(kernel.all_reduce_rms_norm(*inputs), *inputs, eps=1e-6)
    check(kernel.all_reduce_rms_norm(*inputs, EPS, group.group_name), *inputs)


def test_layouts(kernel, group):
    inputs = [random(64, 5).t(), random(5, 128)[:, ::2], random(128)[::2]]
    outputs = kernel.all_reduce_rms_norm(*inputs, EPS, group)
    check(outputs, *inputs)
    assert all(output.is_contiguous() for output in outputs)


def test_memory_that_is_not_aligned(kernel, group, dtype):
    inputs = [random(4 * 64 + 1, dtype=dtype)[1:].view(4, 64) for _ in range(2)]
    inputs.append(random(65, dtype=dtype)[1:])
    check(kernel.all_reduce_rms_norm(*inputs, EPS, group), *inputs)


def test_compile_into_one_graph(kernel, group):
    def layer(partial, residual, weight):
        normalized, total = kernel.all_reduce_rms_norm(partial * 2, residual, weight, EPS)
        return normalized + 1, total

    inputs = [random(4, 64), random(4, 64), random(64)]
    normalized, total = torch.compile(layer, fullgraph=True, backend="aot_eager")(*inputs)
    check((normalized - 1, total), inputs[0] * 2, *inputs[1:])


def test_opcheck(kernel, group):
    inputs = (random(4, 64), random(64, 4).t(), random(64), EPS, group.group_name)
    torch.library.opcheck(kernel._ops.ops.all_reduce_rms_norm.default, inputs)


def test_rejects_what_it_cannot_do(kernel, group):
    def call(*inputs):
        kernel.all_reduce_rms_norm(*inputs, EPS, group)

    x, weight = random(4, 64), random(64)
    with pytest.raises(RuntimeError, match="unsupported dtype"):
        call(x.double(), x.double(), weight.double())
    with pytest.raises(RuntimeError, match="shape of residual"):
        call(random(4, 63), x, weight)
    with pytest.raises(RuntimeError, match=r"weight must have the shape \[64\]"):
        call(x, x, random(63))
    with pytest.raises(RuntimeError, match="dtype of residual"):
        call(x.half(), x, weight)
    with pytest.raises(RuntimeError, match="no such group"):
        kernel.all_reduce_rms_norm(x, x, weight, EPS, "no such group")


def compare_ranks(backend: str, ranks: int) -> None:
    """Start compare_ranks.py once per rank, and require that every rank agrees."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    completed = subprocess.run(
        [*launcher, f"--nproc-per-node={ranks}", str(SCRIPT), backend],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout
    assert completed.stdout.count(": agrees") == ranks, completed.stdout


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_on_cpu(ranks):
    try:
        get_kernel(REPO_ID, version=1, backend="cpu")
    except FileNotFoundError:
        pytest.skip("the CPU variant is not built")
    compare_ranks("gloo", ranks)


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_on_gpus(ranks):
    gpus = torch.cuda.device_count()
    if gpus < ranks:
        pytest.skip(f"needs {ranks} CUDA GPUs, but Torch sees {gpus}")
    compare_ranks("nccl", ranks)
