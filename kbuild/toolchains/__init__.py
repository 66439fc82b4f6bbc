"""One file per way to obtain compilers, headers and libraries.

One contract: requirements of a plan in, a `Toolchain` (paths, environment, versions, fingerprint)
out, or a `ToolchainError` that says what is missing and the one command that mends it.
"""

from kbuild.toolchains.base import Toolchain, ToolchainSource

__all__ = ["Toolchain", "ToolchainSource"]
