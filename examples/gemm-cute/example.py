"""Load the kernel that was built here, and compare it with Torch."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    if not torch.cuda.is_available():
        print("this kernel needs a Hopper GPU")
        return 1
    kernel = get_local_kernel(Path(__file__).parent / "build")
    a = torch.randn(1000, 512, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(512, 784, device="cuda", dtype=torch.bfloat16)
    expected = a.double() @ b.double()
    error = ((kernel.gemm(a, b).double() - expected).norm() / expected.norm()).item()
    print(f"gemm: relative error {error:.1e}")
    return 0 if error < 5e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
