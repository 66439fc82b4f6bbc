"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class GemmBenchmark(Benchmark):
    seed = 0

    def setup_8192(self) -> None:
        self._setup(8192, 8192, 8192)

    def setup_4096(self) -> None:
        self._setup(4096, 4096, 4096)

    def setup_tall(self) -> None:
        self._setup(16384, 1024, 4096)

    def _setup(self, m: int, n: int, k: int) -> None:
        self.a = torch.randn(m, k, device=self.device).bfloat16()
        self.b = torch.randn(k, n, device=self.device).bfloat16()
        self.flops = 2 * m * n * k

    def _run(self) -> None:
        self.out = self.kernel.gemm(self.a, self.b)

    def _reference(self) -> torch.Tensor:
        return self.a @ self.b

    benchmark_8192 = benchmark_4096 = benchmark_tall = _run
    verify_8192 = verify_4096 = verify_tall = _reference
