"""Load the kernel that was built here, and compare it with Torch, on a GPU where there is one."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (torch.randn(1000, 256, device=device) for _ in range(2))
    fine = torch.allclose(kernel.add(x, y, alpha=0.5), x + 0.5 * y, atol=1e-6)
    fine = fine and torch.equal(kernel.mul(x, y), x * y)
    fine = fine and torch.equal(kernel.add_bias(x, y[0]), x + y[0])
    print(f"add, mul and add_bias on the {device.upper()}: {'as Torch' if fine else 'WRONG'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
