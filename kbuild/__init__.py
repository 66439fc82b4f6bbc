"""kbuild packages compute kernels: from build.toml to artefacts that any PyTorch user can load."""

__version__ = "0.1.0"
