"""Time attention against Torch: ``kbuild bench``; ``kernels benchmark`` runs it too."""

import torch
from kernels.benchmark import Benchmark


class AttentionBenchmark(Benchmark):
    seed = 0

    def setup_causal_2k(self) -> None:
        self._setup(8, 2048)

    def setup_causal_8k(self) -> None:
        self._setup(2, 8192)

    def _setup(self, batches: int, rows: int) -> None:
        options = {"device": self.device, "dtype": torch.bfloat16}
        self.q = torch.randn(batches, rows, 16, 128, **options)
        self.k, self.v = (torch.randn(batches, rows, 4, 128, **options) for _ in range(2))
        self.flops = 2 * batches * 16 * rows * rows * 128  # two products, half of each masked

    def _run(self) -> None:
        self.out = self.kernel.attention(self.q, self.k, self.v, True)

    def _reference(self) -> torch.Tensor:
        heads = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *heads, is_causal=True, enable_gqa=True
        )
        return out.transpose(1, 2)

    benchmark_causal_2k = benchmark_causal_8k = _run
    verify_causal_2k = verify_causal_8k = _reference
