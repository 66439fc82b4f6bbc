"""Experimental toolchains from Debian packages: HIP without ROCm, and nvcc for CUDA 12."""
