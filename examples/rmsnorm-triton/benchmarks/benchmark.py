"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class RmsNormBenchmark(Benchmark):
    seed = 0

    def setup_bfloat16(self) -> None:
        self._setup(8192, 4096, torch.bfloat16)

    def setup_float32(self) -> None:
        self._setup(4096, 8192, torch.float32)

    def _setup(self, rows: int, length: int, dtype: torch.dtype) -> None:
        self.x = torch.randn(rows, length, device=self.device).to(dtype)
        self.weight = torch.randn(length, device=self.device).to(dtype)

    def _run(self) -> None:
        self.out = self.kernel.rmsnorm(self.x, self.weight)

    def _reference(self) -> torch.Tensor:
        return torch.nn.functional.rms_norm(self.x, self.weight.shape, self.weight, 1e-6)

    benchmark_bfloat16 = benchmark_float32 = _run
    verify_bfloat16 = verify_float32 = _reference
