"""One file per way to bind a kernel: Torch, Torch stable ABI, TVM-FFI, Python only.

A framework answers: which folder holds the Python package, which macros the units see, which
`_ops.py` flavour is written, what is linked, which C++ standard is used.
"""

from kbuild.backends.frameworks.base import FRAMEWORKS, Framework

__all__ = ["FRAMEWORKS", "Framework"]
