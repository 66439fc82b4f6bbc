"""The GPUs that a `TORCH_CUDA_ARCH_LIST` names, as `torch.utils.cpp_extension` reads it."""

from __future__ import annotations

import re

_NAMED_ARCHS = {
    "Kepler+Tesla": "3.7", "Kepler": "3.5+PTX", "Maxwell+Tegra": "5.3", "Maxwell": "5.0;5.2+PTX",
    "Pascal": "6.0;6.1+PTX", "Volta+Tegra": "7.2", "Volta": "7.0+PTX", "Turing": "7.5+PTX",
    "Ampere+Tegra": "8.7", "Ampere": "8.0;8.6+PTX", "Ada": "8.9+PTX", "Hopper": "9.0+PTX",
    "Blackwell+Tegra": "11.0", "Blackwell": "10.0;10.3;12.0;12.1+PTX",
}  # fmt: skip
"""Generations that cpp_extension knows; longer names first, because the others are in them."""


def read_arch_list(text: str) -> tuple[str, ...]:
    """`9.0+PTX` and the like, each once; nothing for this machine's, which `native` names too."""
    for name, archs in _NAMED_ARCHS.items():
        text = text.replace(name, archs)
    listed = dict.fromkeys(filter(None, re.split(r"[;\s]+", text)))
    return () if [*listed] == ["native"] else tuple(listed)
