"""Time the kernel against Torch: ``kernels benchmark <this project or its Hub id>``."""

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
        self.out = None

    def _run(self) -> None:
        self.out = self.kernel.mm(self.lhs, self.rhs)

    def _reference(self) -> torch.Tensor:
        return self.lhs @ self.rhs

    benchmark_half = benchmark_bfloat16 = _run
    verify_half = verify_bfloat16 = _reference
