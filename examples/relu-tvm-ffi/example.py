"""Load the kernel that was built here, and compare it with Torch and with NumPy."""

import sys
from pathlib import Path

import numpy as np
import torch
from kernels import get_local_kernel


def main() -> int:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = accelerator or torch.device("cpu")
    backend = None if accelerator else "cpu"  # None: what Torch is built for
    kernel = get_local_kernel(Path(__file__).parent / "build", backend=backend)

    x = torch.randn(8, 128, device=device)
    same = torch.equal(kernel.relu(x), torch.relu(x))
    print(f"relu on {device}: {'equal to' if same else 'DIFFERS from'} torch.relu")
    if device.type == "cpu":
        array = x.numpy()
        equal = np.array_equal(kernel.relu(array), np.maximum(array, 0))
        print(f"relu of NumPy: {'equal to' if equal else 'DIFFERS from'} numpy.maximum")
        same = same and equal
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
