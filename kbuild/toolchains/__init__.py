"""Ways to obtain compilers, headers and libraries.

One contract: the requirements of a plan in; a `Toolchain` (paths, environment, versions,
fingerprint) out, or a `ToolchainError` with what is missing and the command that fixes it.
"""
