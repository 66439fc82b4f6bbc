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
    x, y = torch.randn(2, 100_000, device="cuda", dtype=torch.float16)
    same = torch.equal(kernel.add(x, y), x + y)
    print(f"add: {'equal to' if same else 'DIFFERS from'} Torch")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
