"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark

BLOCK = 128


class ScaledGemmBenchmark(Benchmark):
    seed = 0

    def setup_8192(self) -> None:
        self._setup(8192, 8192, 8192)

    def setup_4096(self) -> None:
        self._setup(4096, 4096, 4096)

    def setup_few_rows(self) -> None:
        self._setup(128, 4096, 4096)

    def _setup(self, m: int, n: int, k: int) -> None:
        self.a = torch.randn(m, k, device=self.device).to(torch.float8_e4m3fn)
        self.b = torch.randn(n, k, device=self.device).to(torch.float8_e4m3fn)
        self.scales_a = torch.rand(m, k // BLOCK, device=self.device) + 0.5
        self.scales_b = torch.rand(n // BLOCK, k // BLOCK, device=self.device) + 0.5
        self.by_column = self.scales_a.t().contiguous().t()  # as Torch wants them
        self.flops = 2 * m * n * k

    def _run(self) -> None:
        self.out = self.kernel.gemm(self.a, self.b, self.scales_a, self.scales_b)

    def _reference(self) -> torch.Tensor:
        scales = (self.by_column, self.scales_b.t())
        return torch._scaled_mm(self.a, self.b.t(), *scales, out_dtype=torch.bfloat16)

    benchmark_8192 = benchmark_4096 = benchmark_few_rows = _run
    verify_8192 = verify_4096 = verify_few_rows = _reference
