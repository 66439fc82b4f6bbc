"""Time the kernel against cuBLAS: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class GemmBenchmark(Benchmark):
    seed = 0

    def setup_large(self) -> None:
        self._setup(8192, 8192, 8192)

    def setup_tall(self) -> None:
        self._setup(1024, 4096, 4096)

    def setup_few_rows(self) -> None:
        self._setup(16, 4096, 4096)

    def _setup(self, m: int, n: int, k: int) -> None:
        self.a = torch.randn(m, k, device=self.device, dtype=torch.bfloat16)
        self.b = torch.randn(k, n, device=self.device, dtype=torch.bfloat16)
        self.flops = 2 * m * n * k

    def _run(self) -> None:
        self.out = self.kernel.gemm(self.a, self.b)

    def _reference(self) -> torch.Tensor:
        return self.a @ self.b

    benchmark_large = benchmark_tall = benchmark_few_rows = _run
    verify_large = verify_tall = verify_few_rows = _reference
