"""Follows calls of Helion kernels: Helion writes Triton code for them, which is captured."""
