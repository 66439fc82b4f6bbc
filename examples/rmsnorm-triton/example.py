"""Load the kernel that was built here, and compare it with Torch. It needs a GPU, not Triton."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build")
    if not torch.cuda.is_available():
        print("rmsnorm is loaded; there is no GPU to run it on")
        return 0
    x = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
    ours = kernel.rmsnorm(x, weight)
    theirs = torch.nn.functional.rms_norm(x.double(), (4096,), weight.double(), 1e-6)
    error = ((ours - theirs).abs() / theirs.abs().clamp_min(1e-3)).max().item()
    print(f"rmsnorm on {torch.cuda.get_device_name()}: largest relative error {error:.1e}")
    return 0 if error < 2**-8 else 1


if __name__ == "__main__":
    sys.exit(main())
