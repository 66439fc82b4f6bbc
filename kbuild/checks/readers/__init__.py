"""Readers of what compilers and linkers write: ELF, Mach-O, and device code inside them.

Nothing here knows checks, builds or languages.
"""
