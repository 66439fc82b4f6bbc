"""Load the kernel that was built here, and compare it with Torch."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = accelerator or torch.device("cpu")
    backend = None if accelerator else "cpu"  # None: what Torch is built for
    kernel = get_local_kernel(Path(__file__).parent / "build", backend=backend)

    x = torch.randn(8, 128, device=device)
    ours, theirs = kernel.relu(x), torch.relu(x)
    same = torch.equal(ours, theirs)
    print(f"relu on {device}: {'equal to' if same else 'DIFFERS from'} torch.relu")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
