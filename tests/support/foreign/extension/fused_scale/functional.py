from __future__ import annotations

import torch

from fused_scale import _C


def double(x: torch.Tensor) -> torch.Tensor:
    return _C.scale(x, factor=2.0)


def level() -> int:
    return _C.level()
