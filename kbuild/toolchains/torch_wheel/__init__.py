"""Torch wheels that the user gives: what they are, which variants they fit, and their files.

A given wheel goes before the Torch of an interpreter and before pinned wheels, for the variants of
its own release and backend. It is never installed or imported: what compilers and the linker read
is unpacked into kbuild's store.
"""

from __future__ import annotations

from kbuild.toolchains.torch_wheel.choice import GivenFirst
from kbuild.toolchains.torch_wheel.given import TorchWheel, open_wheel

__all__ = ["GivenFirst", "TorchWheel", "open_wheel"]
