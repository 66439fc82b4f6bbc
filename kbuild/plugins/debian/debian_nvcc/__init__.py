"""CUDA 12 without an installed toolkit: Debian's nvcc 12.4, with headers from wheels.

Opt-in: the compiler is under NVIDIA's licence, and its release is not the one that a variant is
named after. An installed toolkit of that release is preferred, see
`kbuild.toolchains.cuda_toolkits`.
"""
