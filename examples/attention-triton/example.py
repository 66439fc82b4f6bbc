"""Load what was built here, and compare attention with Torch. It needs a GPU, not Triton."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel


def main() -> int:
    kernel = get_local_kernel(Path(__file__).parent / "build")
    if not torch.cuda.is_available():
        print("attention is loaded; there is no GPU to run it on")
        return 0
    q = torch.randn(2, 1000, 8, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(2, 1000, 2, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ours = kernel.attention(q, k, v, causal=True)
    wide = [x.float().transpose(1, 2) for x in (q, k, v)]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *wide, is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    error = ((ours - theirs).norm() / theirs.norm()).item()
    print(f"attention on {torch.cuda.get_device_name()}: relative error {error:.1e}")
    return 0 if error < 2**-7 else 1


if __name__ == "__main__":
    sys.exit(main())
