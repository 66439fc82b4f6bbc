"""HIP without ROCm: Debian's clang and HIP headers, unpacked into kbuild's store.

Opt-in and experimental: the headers are older than the ROCm release that a variant is named after,
and its output has not run on an AMD GPU here. An installed ROCm is preferred, see
`kbuild.toolchains.rocm`.
"""
