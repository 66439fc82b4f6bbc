"""HIP without ROCm: Debian's clang and HIP headers, unpacked into kbuild's store.

Opt-in and experimental: the headers are older than the ROCm release that a variant is named after,
and what it compiles has not run on an AMD GPU here. A real ROCm goes first, see
`kbuild.toolchains.rocm`.
"""

from kbuild.toolchains.debian_hip.source import DebianHip

__all__ = ["DebianHip"]
