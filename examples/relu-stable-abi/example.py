"""Load the kernel that was built here, and compare it with Torch."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def current_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if torch.xpu.is_available():
        return "xpu"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build")
    x = torch.randn(8, 128, device=current_device())
    ours, theirs = kernel.relu(x), torch.relu(x)
    same = torch.equal(ours, theirs)
    print(f"relu on {x.device}: {'equal to' if same else 'DIFFERS from'} torch.relu")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
