"""Portable binaries from the host's own compiler.

Symbols that are newer than the manylinux policy stay out of an extension: it is linked against
stubs of the policy's libraries, and a small static library supplies the rest. See
`docs/explanation/manylinux.md`.
"""
