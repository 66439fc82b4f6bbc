"""What each rank runs under ``torchrun``: compare the kernel with Torch's all-reduce, add and norm.

``torchrun --standalone --nproc-per-node=2 tests/compare_ranks.py gloo`` compares on the CPU,
``nccl`` on one CUDA GPU per rank.
"""

import os
import sys

import torch
import torch.distributed as dist
from kernels import get_kernel

REPO_ID = "kbuild-examples/all-reduce-norm"
SHAPES = [(4, 512), (2, 3, 1000), (5, 77), (3, 20_000), (0, 64)]
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
EPS = 1e-5


def random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int):
    torch.manual_seed(seed)
    return torch.randn(shape).to(device=device, dtype=dtype)


def compare(function, shape, dtype: torch.dtype, device: torch.device, group=None) -> None:
    """Raise AssertionError unless ``function`` agrees with Torch on this rank."""
    partial = random(shape, dtype, device, seed=1 + dist.get_rank())
    residual = random(shape, dtype, device, seed=100)
    weight = random(shape[-1:], dtype, device, seed=101)
    reduced = partial.clone()

    normalized, total = function(partial, residual, weight, EPS, group)

    torch.testing.assert_close(partial, reduced, rtol=0, atol=0)  # inputs are not written
    dist.all_reduce(reduced, group=group)
    expected = reduced + residual
    torch.testing.assert_close(total, expected, rtol=0, atol=0)
    expected = torch.nn.functional.rms_norm(expected, shape[-1:], weight, EPS)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(normalized, expected, rtol=tolerance, atol=tolerance)


def compare_subgroups(function, device: torch.device) -> None:
    """The sums of two halves of the ranks are independent of each other."""
    size = dist.get_world_size()
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    groups = [dist.new_group(ranks) for ranks in halves]  # every rank has to create both
    group = groups[dist.get_rank() >= size // 2]
    compare(function, (4, 512), torch.float32, device, group)


def main(backend: str) -> None:
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    kernel = get_kernel(REPO_ID, version=1, backend=device.type)
    for dtype in TOLERANCES:
        for shape in SHAPES:
            compare(kernel.all_reduce_rms_norm, shape, dtype, device)
    compare_subgroups(kernel.all_reduce_rms_norm, device)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {device}: agrees")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
