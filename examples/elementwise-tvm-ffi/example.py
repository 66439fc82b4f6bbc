"""Load the kernel that was built here, and compare it with Torch and with NumPy."""

import sys
from pathlib import Path

import numpy as np
import torch
from kernels import get_local_kernel


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kernel = get_local_kernel(Path(__file__).parent / "build", backend=device)
    x, y = torch.randn(2, 1000, 256, device=device)
    fine = torch.allclose(kernel.axpy(x, y, alpha=0.5), x + 0.5 * y, atol=1e-6)
    if device == "cuda":
        expected = torch.nn.functional.silu(x) * y
        fine &= torch.allclose(kernel.swiglu(x, y), expected, rtol=1e-5, atol=1e-6)
    else:
        ours = kernel.axpy(x.numpy(), y.numpy(), alpha=0.5)
        fine &= np.allclose(ours, x.numpy() + 0.5 * y.numpy(), atol=1e-6)
    print(f"on the {device.upper()}: {'as expected' if fine else 'WRONG'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
