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
    a = torch.randn(1000, 512, device="cuda")
    b = torch.randn(784, 512, device="cuda")
    left, right = kernel.quantize(a), kernel.quantize(b, rows=128)
    out = kernel.gemm(left[0], right[0], left[1], right[1])
    expected = a.double() @ b.double().t()
    error = ((out.double() - expected).norm() / expected.norm()).item()
    print(f"gemm: relative error {error:.1e}, nearly all of it of the rounding to float8")
    return 0 if error < 5e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
