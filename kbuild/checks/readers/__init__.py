"""Readers of what compilers and linkers write: ELF, Mach-O, PE, and device code inside them.

Nothing here knows checks, builds or languages.
"""
