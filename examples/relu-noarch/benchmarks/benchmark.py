"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class ReluNoarchBenchmark(Benchmark):
    seed = 0

    def setup_small(self) -> None:
        self._setup(1024, torch.float32)

    def setup_large(self) -> None:
        self._setup(1 << 24, torch.float32)

    def setup_large_half(self) -> None:
        self._setup(1 << 24, torch.float16)

    def _setup(self, size: int, dtype: torch.dtype) -> None:
        self.x = torch.randn(size, device=self.device).to(dtype)

    def _run(self) -> None:
        self.out = self.kernel.relu(self.x)

    def _reference(self) -> torch.Tensor:
        return torch.relu(self.x)

    benchmark_small = benchmark_large = benchmark_large_half = _run
    verify_small = verify_large = verify_large_half = _reference
