"""Time the kernel against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class AddBenchmark(Benchmark):
    seed = 0

    def setup_small(self) -> None:
        self._setup(1024)

    def setup_large(self) -> None:
        self._setup(1 << 24)

    def setup_large_unaligned(self) -> None:
        self._setup((1 << 24) + 1)

    def _setup(self, size: int) -> None:
        self.x, self.y = torch.randn(2, size, device=self.device).half()
        self.out = torch.empty_like(self.x)

    def _run(self) -> None:
        self.kernel.add(self.x, self.y, out=self.out)

    def _reference(self) -> torch.Tensor:
        return self.x + self.y

    benchmark_small = benchmark_large = benchmark_large_unaligned = _run
    verify_small = verify_large = verify_large_unaligned = _reference
