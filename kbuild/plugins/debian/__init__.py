"""The toolchain `debian-nvcc`: Debian's nvcc, unpacked into the store, for CUDA 12."""
