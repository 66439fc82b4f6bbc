"""Kernels for the running interpreter: `kbuild.load`, `kbuild.load_inline`, the pytest plug-in."""
