"""Torch's function schemas: `rmsnorm(Tensor x, Tensor? bias, float eps=1e-6) -> Tensor`.

Parsed without Torch. Everything that kbuild accepts, Torch's own parser accepts too.
"""
