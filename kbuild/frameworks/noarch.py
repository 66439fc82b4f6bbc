"""Python-only kernels on Torch: nothing is compiled."""

from __future__ import annotations

from kbuild.frameworks.base import FRAMEWORKS, Framework


@FRAMEWORKS.add
class TorchNoarch(Framework):
    """Triton and other kernels whose files are Python."""

    name = "torch-noarch"
    table = "torch-noarch"
    package_root = "torch-ext"
    ops_template = "ops_noarch.py.j2"
    compiled = False
