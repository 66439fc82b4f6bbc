"""Load the kernel that was built here, and compare it with Torch."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build", backend="cuda")
    if not torch.cuda.is_available():
        print("loaded; it needs a CUDA GPU to run")
        return 0
    x, y = torch.randn(2, 100_000, device="cuda", dtype=torch.float16)
    same = torch.equal(kernel.add(x, y), x + y)
    print(f"add: {'equal to' if same else 'DIFFERS from'} Torch")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
