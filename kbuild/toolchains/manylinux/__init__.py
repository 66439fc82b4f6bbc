"""Portable binaries from the host's own compiler.

What a newer compiler and C library put into an extension (symbols that came after the manylinux
policy) is left out at link time: the link sees stubs of the policy's libraries, and a small static
library supplies the rest. `docs/explanation/manylinux.md` tells the whole story.
"""

from kbuild.toolchains.manylinux.compiler import OLDEST_ASSEMBLER, Needs, link_needs
from kbuild.toolchains.manylinux.environment import LinkEnvironment, link_environment
from kbuild.toolchains.manylinux.portability import Portability, portability
from kbuild.toolchains.manylinux.symbols import DEFAULT_POLICY

__all__ = [
    "DEFAULT_POLICY",
    "OLDEST_ASSEMBLER",
    "LinkEnvironment",
    "Needs",
    "Portability",
    "link_environment",
    "link_needs",
    "portability",
]
