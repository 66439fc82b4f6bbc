"""`load_inline`: kernels from sources in strings, for the running interpreter."""

from kbuild.plugins.inline.inline import load_inline

__all__ = ["load_inline"]
