"""An experimental toolchain from Debian packages: nvcc for CUDA 12."""
