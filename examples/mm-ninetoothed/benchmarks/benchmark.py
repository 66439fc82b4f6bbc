"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class MmBenchmark(Benchmark):
    seed = 0

    def setup_half(self) -> None:
        self._setup(torch.float16)

    def setup_bfloat16(self) -> None:
        self._setup(torch.bfloat16)

    def _setup(self, dtype: torch.dtype) -> None:
        size = self.kernel.SIZE
        self.lhs, self.rhs = torch.randn(2, size, size, device=self.device).to(dtype)
        self.flops = 2 * size**3
        self.out = None

    def _run(self) -> None:
        self.out = self.kernel.mm(self.lhs, self.rhs)

    def _reference(self) -> torch.Tensor:
        return self.lhs @ self.rhs

    benchmark_half = benchmark_bfloat16 = _run
    verify_half = verify_bfloat16 = _reference
