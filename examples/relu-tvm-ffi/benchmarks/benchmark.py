"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class ReluBenchmark(Benchmark):
    seed = 0

    def setup_small(self) -> None:
        self._setup(1024)

    def setup_large(self) -> None:
        self._setup(1 << 24)

    def _setup(self, size: int) -> None:
        self.x = torch.randn(size, device=self.device)
        self.out = torch.empty_like(self.x)

    def _run(self) -> None:
        self.kernel._ops.ops.relu(self.x, self.out)

    def _reference(self) -> torch.Tensor:
        return torch.relu(self.x)

    benchmark_small = benchmark_large = _run
    verify_small = verify_large = _reference
