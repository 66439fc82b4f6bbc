"""Load the kernel that was built here, and compare it with Torch: alone, or under ``torchrun``."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from kernels import get_local_kernel


def start() -> torch.device:
    """Join the ranks that torchrun started; without it, be the only rank."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    backend = "nccl" if on_gpu else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return torch.device("cuda", rank) if on_gpu else torch.device("cpu")


def main() -> int:
    device = start()
    kernel = get_local_kernel(Path(__file__).parent / "build", backend=device.type)

    torch.manual_seed(0)
    residual, weight = torch.randn(8, 512, device=device), torch.randn(512, device=device)
    torch.manual_seed(1 + dist.get_rank())
    partial = torch.randn(8, 512, device=device)
    ours, total = kernel.all_reduce_rms_norm(partial, residual, weight)

    dist.all_reduce(partial)
    theirs = torch.nn.functional.rms_norm(partial + residual, (512,), weight, 1e-6)
    same = torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    same = same and torch.equal(total, partial + residual)
    verdict = "equal to" if same else "DIFFERS from"
    ranks = f"rank {dist.get_rank()} of {dist.get_world_size()}"
    print(f"all_reduce_rms_norm on {device}, {ranks}: {verdict} Torch's three operators")
    dist.destroy_process_group()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
