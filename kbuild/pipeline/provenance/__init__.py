"""The provenance of a variant: the kbuild that built it, and everything that went in."""
