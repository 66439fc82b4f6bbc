"""Load the kernel that was built here, and compare it with Torch."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    if not torch.cuda.is_available():
        print("this kernel needs a CUDA GPU")
        return 1
    kernel = get_local_kernel(Path(__file__).parent / "build")
    lhs, rhs = torch.randn(2, kernel.SIZE, kernel.SIZE, device="cuda", dtype=torch.float16)
    error = (kernel.mm(lhs, rhs).double() - lhs.double() @ rhs.double()).abs().max().item()
    print(f"mm: at most {error:.3g} from the product in float64")
    return 0 if error < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
