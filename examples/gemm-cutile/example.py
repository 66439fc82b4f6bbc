"""Load the kernel that was built here, and compare it with Torch. It needs a GPU, not cuTile."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build")
    if not torch.cuda.is_available():
        print("gemm is loaded; there is no GPU to run it on")
        return 0
    a, b = (torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ours, theirs = kernel.gemm(a, b), a.double() @ b.double()
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(
        f"gemm on {torch.cuda.get_device_name()}: largest error {error:.1e} of the largest element"
    )
    return 0 if error < 2**-7 else 1


if __name__ == "__main__":
    sys.exit(main())
