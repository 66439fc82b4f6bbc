"""CUDA 12 where no toolkit is installed: Debian's nvcc 12.4, headers and runtime from wheels.

Opt-in, because the compiler is under NVIDIA's licence and is not that of the release that a variant
is named after. A toolkit of that release goes first, see `kbuild.toolchains.local_cuda`.
"""

from kbuild.toolchains.debian_nvcc.source import DebianNvcc
from kbuild.toolchains.debian_nvcc.toolkit import DebianNvccToolkits

__all__ = ["DebianNvcc", "DebianNvccToolkits"]
