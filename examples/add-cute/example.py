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
    x, y = torch.randn(2, 300, 500, device="cuda", dtype=torch.bfloat16)
    expected = (x.float() + 0.5 * y.float()).bfloat16()
    same = torch.equal(kernel.add(x, y, alpha=0.5), expected)
    same &= torch.equal(kernel.add(x.t(), y.t(), alpha=0.5), expected.t())
    print(f"add: {'equal to' if same else 'DIFFERS from'} Torch")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
