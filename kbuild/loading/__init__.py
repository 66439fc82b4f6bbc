"""Kernels for the running interpreter: `kbuild.load` and the pytest plug-in."""
